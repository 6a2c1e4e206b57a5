package host

import (
	"net"
	"net/netip"
	"sync"
)

// shares are slots of which each Pod may have as many as are left: a single Pod gets half of them, and the next one, when the first
// has taken its share, half of the rest. So a Pod cannot take what others need, and no Pod loses what it has.
type shares struct {
	mu   sync.Mutex
	free int
	held map[netip.Addr]int
}

// newShares returns so many slots.
func newShares(slots int) *shares { return &shares{free: slots, held: map[netip.Addr]int{}} }

// take takes a slot for the Pod with an address, and reports whether it got one. The caller must give it back.
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

// guard returns a function that serves a connection in a slot of its Pod, and resets it if there is no slot. Connections from other
// addresses are those of the node itself, and need no slot.
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

// sender returns the IP address of a sender; it is invalid if the sender has none.
func sender(from net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
