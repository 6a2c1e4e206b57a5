package harness

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// The ports that FreeAddress chooses from are below the kernel's range of ephemeral ports, so that an outgoing connection of
// another process does not take a port before the test listens on it, or while its program restarts. They are below those of
// control planes, too.
const (
	firstPort = 10000
	lastPort  = 20000
)

// FreeAddress returns an address of the loopback interface with a port that neither TCP nor UDP uses.
func FreeAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	var failure error
	for range 100 {
		address := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(firstPort+rand.N(lastPort-firstPort)))
		if failure = tryPort(address); failure == nil {
			return address
		}
	}
	t.Fatalf("no free port: %v", failure)
	return netip.AddrPort{}
}

func tryPort(address netip.AddrPort) error {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return err
	}
	return packets.Close()
}
