package network

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/egress"
)

// leaves reports whether machines may reach an address outside of the networks of this host.
func (s *netswitch) leaves(rules *Egress, addr netip.Addr) bool {
	if rules.Mode == EgressNone || egress.IsNever(addr) {
		return false
	}
	if !(egress.Filter{Networks: rules.Networks}).Allows(addr) {
		return false
	}
	return !s.host.has(addr)
}

// hostAge is how long the list of the host's addresses is used.
const hostAge = time.Second

// hostAddresses knows the addresses of this host.
type hostAddresses struct {
	list func() ([]net.Addr, error)

	mu    sync.Mutex
	until time.Time
	known []netip.Addr
	err   error
}

// has reports whether the host has an address. If that cannot be found out, it says yes: nothing is reached.
func (h *hostAddresses) has(addr netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.After(h.until) {
		h.refresh()
		h.until = now.Add(hostAge)
	}
	return h.err != nil || slices.Contains(h.known, addr.Unmap())
}

func (h *hostAddresses) refresh() {
	list, err := h.list()
	h.known, h.err = h.known[:0], err
	for _, one := range list {
		if network, ok := one.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(network.IP); ok {
				h.known = append(h.known, addr.Unmap())
			}
		}
	}
}
