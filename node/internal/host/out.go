package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// serveEach accepts connections, and serves each in a goroutine of its own, until the listener is closed.
func serveEach(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			time.Sleep(50 * time.Millisecond)
			continue
		}
		go serve(c)
	}
}

// maxOut is how many connections of Pods lead out at a time. They take descriptors of the process that brings the node's
// components to the API, which must not run out of them.
const maxOut = 4096

// maxToNode is how many connections of Pods lead to the API at a time, and as many ask for names.
const maxToNode = 1024

// newOut returns slots for connections that lead out: at most maxOut, and half of the descriptors of this process, of which
// so many may be open and each connection takes two.
func newOut(descriptors uint64) *shares { return newShares(slotsFor(descriptors/4, maxOut)) }

// newToNode returns slots for connections to what the node has for Pods: to the API, which take two descriptors, or to ask
// for names, which take two as well while a server is asked.
func newToNode(descriptors uint64) *shares { return newShares(slotsFor(descriptors/16, maxToNode)) }

// slotsFor returns a number of slots from one on that is not above either of these.
func slotsFor(affordable uint64, most int) int { return int(min(uint64(most), max(1, affordable))) }

// maxDescriptors returns how many files this process may have open.
func maxDescriptors() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("ask how many files may be open: %w", err)
	}
	return limit.Cur, nil
}

// reset ends a connection so that its client learns that it was not served, and does not take it for the end of what was said.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// leadOut connects a Pod to what it wanted to be connected with, from this machine, whose address and routes it uses. Its
// client learns by a reset that this is not possible.
func leadOut(inner net.Conn, target func(net.Conn) (netip.AddrPort, error), s settings.Settings) {
	outer, err := dialOut(inner, target, s)
	if err != nil {
		reset(inner)
		return
	}
	join(inner, outer)
}

func dialOut(inner net.Conn, target func(net.Conn) (netip.AddrPort, error), s settings.Settings) (net.Conn, error) {
	to, err := target(inner)
	if err != nil {
		return nil, err
	}
	return dialTarget(outward, "tcp", to, s)
}

// dialTarget connects to what a Pod may reach through this machine: not to what is in the node, which it reaches without.
func dialTarget(dialer *net.Dialer, network string, to netip.AddrPort, s settings.Settings) (net.Conn, error) {
	if s.Reaches(to.Addr()) {
		return nil, fmt.Errorf("%s is in the node", to) // as is the listener itself
	}
	return dialer.Dial(network, to.String())
}

// originalTarget returns what a connection was made to, before a rule of the firewall has led it here.
func originalTarget(c net.Conn) (netip.AddrPort, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("a %T has no original target", c)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var to netip.AddrPort
	var failed error
	err = raw.Control(func(fd uintptr) {
		// A struct sockaddr_in, in the first structure of golang.org/x/sys that is large enough: 2 bytes for the family,
		// 2 for the port and 4 for the address, in the order of the network.
		value, err := unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			failed = fmt.Errorf("ask for the original target: %w", err)
			return
		}
		bytes := value.Multiaddr
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(bytes[4:8])), binary.BigEndian.Uint16(bytes[2:4]))
	})
	return to, errors.Join(err, failed)
}
