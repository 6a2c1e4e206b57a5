package network

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// internet makes an address of the public Internet lead to a server of the test, "internet", TCP and UDP, and no others
// anywhere. It returns the address.
func internet(t *testing.T, w *world) string {
	t.Helper()
	const public = "93.184.216.34:80"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = packets.Close()
	})
	go echo(listener, "internet")
	go echoPackets(packets, "internet")
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != public {
			t.Errorf("the switch connects to %s", address)
			return nil, errors.New("there is no way to it in this test")
		}
		if strings.HasPrefix(network, "udp") {
			return (&net.Dialer{}).DialContext(ctx, network, packets.LocalAddr().String())
		}
		return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
	}
	w.stop()
	w.prepare = func(s *netswitch) { s.dial = dial }
	w.start()
	return public
}

func TestEgress(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	public := internet(t, w)
	a.wait()
	conn, err := a.dial(public)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "internet")
	talkUDP(t, a.dialUDP(public), "internet", "hello")
	talkUDP(t, a.dialUDP(public), "internet", strings.Repeat("x", 20000)) // in fragments

	// What was allowed ends when it is not any more.
	w.apply(func(c *Config) { c.Egress.Mode = EgressNone })
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still there")
	}
	refused(t, a, public)
}

// syn is the beginning of a TCP connection, as a frame. A stack would not send some of these.
func syn(g *guest, source uint16, target netip.AddrPort) []byte {
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, source)
	binary.BigEndian.PutUint16(segment[2:], target.Port())
	segment[12], segment[13] = 5<<4, 2 // SYN
	return append(appendIPv4(appendEthernet(nil, gatewayMAC, g.mac(), etherIPv4), g.machine.Address, target.Addr(), protocolTCP, len(segment)), segment...)
}

// isRefusal reports whether a frame refuses a connection to a target: a reset, or an ICMP error about it.
func isRefusal(b []byte, target netip.AddrPort) bool {
	if len(b) < etherLen+ipv4Len+20 || b[12] != etherIPv4>>8 || b[13] != etherIPv4&0xff {
		return false
	}
	packet := ipv4Packet(b[etherLen:])
	switch body := packet.payload(); packet.protocol() {
	case protocolTCP:
		return packet.source() == target.Addr() && body[13]&4 != 0
	case protocolICMP:
		return body[0] == icmpUnreachable && netipAddr(body[icmpLen+16:]) == target.Addr()
	default:
		return false
	}
}

// TestEgressIsRefused tries addresses that no rule of egress opens, at a port at which the host listens on all its addresses.
func TestEgressIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go echo(listener, "host")
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	addresses := []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "168.63.129.16", "100.100.100.200", "192.0.0.192", "240.0.0.1"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range own {
		if network := one.(*net.IPNet); network.IP.To4() != nil {
			addresses = append(addresses, network.IP.String())
		}
	}
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	internet(t, w) // fails the test at any attempt to connect
	a.wait()
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	source := uint16(2000)
	try := func(address string) {
		t.Helper()
		source++
		target := netip.AddrPortFrom(netip.MustParseAddr(address), port)
		a.ask("refusal of "+address, syn(a, source, target), func(b []byte) bool { return isRefusal(b, target) })
	}
	for _, rule := range []Egress{{}, {Networks: everything}, {Mode: EgressNone, Networks: everything}} {
		w.apply(func(c *Config) { c.Egress = rule })
		for _, address := range addresses {
			try(address)
		}
	}
	try("93.184.216.34")
	w.apply(func(c *Config) { c.Egress = Egress{} })
	for _, address := range []string{"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1"} {
		try(address)
	}
	for _, address := range []string{"224.0.0.1", "255.255.255.255"} { // not answered
		a.send(syn(a, 1999, netip.AddrPortFrom(netip.MustParseAddr(address), port)))
	}
	if drops, want := w.machine(a).DropsBy["refused"], uint64(3*len(addresses)+6); drops < want {
		t.Errorf("%d refusals were counted, want %d", drops, want)
	}
}

// TestEgressNetworks: a network that the administrator adds is reached.
func TestEgressNetworks(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go echo(listener, "inside")
	w.stop()
	w.prepare = func(s *netswitch) {
		s.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
		}
	}
	w.start()
	a.wait()
	refused(t, a, "10.9.0.1:80")
	w.apply(func(c *Config) { c.Egress.Networks = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")} })
	conn, err := a.dial("10.9.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "inside")
	refused(t, a, "10.8.0.1:80")
}

// TestHostAddresses: an address that the host has since a moment ago is refused, although it is public.
func TestHostAddresses(t *testing.T) {
	var own []net.Addr
	var failure error
	s := &netswitch{host: &hostAddresses{list: func() ([]net.Addr, error) { return own, failure }}}
	public := netip.MustParseAddr("93.184.216.34")
	reaches := func() bool {
		s.host.until = s.host.until.Add(-2 * hostAge)
		return s.leaves(&Egress{}, public)
	}
	if !reaches() {
		t.Error("a public address is refused")
	}
	own = []net.Addr{&net.IPNet{IP: net.ParseIP("93.184.216.34"), Mask: net.CIDRMask(24, 32)}}
	if reaches() {
		t.Error("an address of the host is reached")
	}
	own, failure = nil, errors.New("no netlink")
	if reaches() {
		t.Error("something is reached although the addresses of the host are unknown")
	}
	for _, mapped := range []string{"::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::ffff:169.254.169.254"} {
		failure = nil
		if s.leaves(&Egress{Networks: []netip.Prefix{netip.MustParsePrefix("::/0"), netip.MustParsePrefix("0.0.0.0/0")}}, netip.MustParseAddr(mapped)) {
			t.Errorf("%s is reached", mapped)
		}
	}
}

func TestUnreachableIsSaid(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	conn := a.dialUDP("10.0.0.1:53")
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	a.next("ICMP port unreachable", func(b []byte) bool { return isICMP(b, icmpUnreachable, icmpPortUnreachable) })
	// A ping of what must not be reached.
	own := a.mac()
	a.send(appendICMP(appendEthernet(nil, gatewayMAC, own, etherIPv4), a.machine.Address, netip.MustParseAddr("169.254.169.254"), icmpEcho, 0, [4]byte{0, 7, 0, 1}, []byte("ping")))
	a.next("ICMP prohibited", func(b []byte) bool { return isICMP(b, icmpUnreachable, icmpAdminProhibited) })
	// And of the gateway.
	a.send(appendICMP(appendEthernet(nil, gatewayMAC, own, etherIPv4), a.machine.Address, netip.MustParseAddr("10.77.1.1"), icmpEcho, 0, [4]byte{0, 7, 0, 1}, []byte("ping")))
	a.next("echo reply", func(b []byte) bool { return isICMP(b, icmpEchoReply, 0) })
	if dropped := w.machine(a).DropsBy["refused"]; dropped < 2 {
		t.Errorf("%d refusals were counted", dropped)
	}
}

func isICMP(b []byte, kind, code byte) bool {
	return len(b) >= etherLen+ipv4Len+icmpLen && b[12] == etherIPv4>>8 && b[etherLen+9] == protocolICMP &&
		b[etherLen+ipv4Len] == kind && b[etherLen+ipv4Len+1] == code
}
