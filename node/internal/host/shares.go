package host

import (
	"net"
	"net/netip"
	"sync"
)

// shares are slots of which each Pod may have as many as are left then: one alone gets half of them, and the next one, when
// that has taken its share, half of the others. So no Pod can take what the others need, and nobody loses what it has.
type shares struct {
	mu   sync.Mutex
	free int
	held map[netip.Addr]int
}

// newShares returns so many slots.
func newShares(slots int) *shares { return &shares{free: slots, held: map[netip.Addr]int{}} }

// take takes a slot for the Pod with an address, and tells whether there is one for it. It is to be given back.
func (s *shares) take(pod netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[pod] >= s.free {
		return false
	}
	s.held[pod]++
	s.free--
	return true
}

// give gives a slot of a Pod back.
func (s *shares) give(pod netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[pod]--; s.held[pod] == 0 {
		delete(s.held, pod)
	}
}

// guard returns what serves a connection in a slot of the Pod that has made it, and resets it if there is none. What has
// no address of a Pod is a part of the node itself, and needs none.
func (s *shares) guard(pods netip.Prefix, serve func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		if pod := sender(c.RemoteAddr()); pods.Contains(pod) {
			if !s.take(pod) {
				reset(c)
				return
			}
			defer s.give(pod)
		}
		serve(c)
	}
}

// sender returns the address of who has sent something, which is invalid if it is none of IP.
func sender(from net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
