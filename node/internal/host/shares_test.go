package host

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// testPod returns the address of one of several Pods.
func testPod(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 100, 0, byte(i + 1)}) }

// takeAll takes as many slots for a Pod as it can have.
func takeAll(s *shares, pod netip.Addr) (taken int) {
	for s.take(pod) {
		taken++
	}
	return taken
}

func TestShares(t *testing.T) {
	for _, test := range []struct {
		name  string
		slots int
		want  []int // that one Pod after the other can have
	}{
		{"each gets half of what is left", 1024, []int{512, 256, 128, 64}},
		{"an odd number", 7, []int{4, 2, 1, 0}},
		{"one slot", 1, []int{1, 0}},
		{"none", 0, []int{0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, got := newShares(test.slots), []int{}
			for i := range test.want {
				got = append(got, takeAll(s, testPod(i)))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the Pods get %v, want %v", got, test.want)
			}
			for i, taken := range got {
				for range taken {
					s.give(testPod(i))
				}
			}
			if s.free != test.slots || len(s.held) != 0 {
				t.Errorf("all was given back, and there is %+v", s)
			}
		})
	}
}

// What the first one gives back goes to whoever has less.
func TestSharesBecomeEqual(t *testing.T) {
	s := newShares(12)
	first, second := testPod(0), testPod(1)
	if got := []int{takeAll(s, first), takeAll(s, second)}; !slices.Equal(got, []int{6, 3}) {
		t.Fatalf("at first they have %v", got)
	}
	for range 2 { // it gives one slot back, and both want as many as they can have
		s.give(first)
		takeAll(s, second)
		takeAll(s, first)
	}
	if s.held[first] != 4 || s.held[second] != 4 || s.free != 4 {
		t.Errorf("in the end there is %+v", s)
	}
}

// connectionFrom is a connection that somebody has made.
type connectionFrom struct {
	net.Conn
	address string
	closed  bool
}

func (c *connectionFrom) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.address), 4000))
}

func (c *connectionFrom) Close() error {
	c.closed = true
	return nil
}

func TestGuard(t *testing.T) {
	for _, test := range []struct {
		name, address string
		served        bool
	}{
		{"a Pod with its share", "10.100.0.7", false},
		{"the same by another way of writing", "::ffff:10.100.0.7", false},
		{"another Pod", "10.100.0.8", true},
		{"kubelet", "127.0.0.1", true},
		{"the node", "10.100.255.2", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, served := newShares(3), false // of which one is free
			takeAll(s, netip.MustParseAddr("10.100.0.7"))
			c := &connectionFrom{address: test.address}
			s.guard(testSettings.PodNetwork(), func(net.Conn) { served = true })(c)
			if served != test.served || c.closed == test.served {
				t.Errorf("it is served: %t, closed: %t", served, c.closed)
			}
			if s.free != 1 {
				t.Errorf("then %d slots are free", s.free)
			}
		})
	}
}
