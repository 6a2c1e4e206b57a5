package serving

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestShares(t *testing.T) {
	few, many, more := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::1")
	neighbour := netip.MustParseAddr("2001:db8::2") // has the network of more
	type taker struct {
		from netip.Addr
		// waitTimeout is how long it waits; zero: for ever.
		waitTimeout time.Duration
	}
	for _, tt := range []struct {
		name               string
		limit, each, queue int
		takers             []taker
		// want says which of them have a place at first, and then each that has the place of the first.
		now, then []int
		refused   []int
	}{
		{name: "all that there are", limit: 3, each: 3, queue: 9, takers: []taker{{from: many}, {from: many}, {from: few}, {from: more}},
			now: []int{0, 1, 2}, then: []int{3}},
		{name: "an address has its LimitConnections", limit: 9, each: 2, queue: 9, takers: []taker{{from: many}, {from: many}, {from: many}, {from: few}},
			now: []int{0, 1, 3}, then: []int{2}},
		{name: "an address with IPv6 is a network", limit: 9, each: 1, queue: 9, takers: []taker{{from: more}, {from: neighbour}, {from: few}},
			now: []int{0, 2}, then: []int{1}},
		{name: "the address that has the fewest is next", limit: 3, each: 3, queue: 9,
			takers: []taker{{from: many}, {from: many}, {from: more}, {from: many}, {from: few}, {from: more}}, now: []int{0, 1, 2}, then: []int{4}},
		{name: "the latest is next", limit: 1, each: 1, queue: 9, takers: []taker{{from: many}, {from: few}, {from: few}}, now: []int{0}, then: []int{2}},
		{name: "who gave up is not", limit: 1, each: 1, queue: 9, takers: []taker{{from: many}, {from: few}, {from: few, waitTimeout: time.Second}},
			now: []int{0}, then: []int{1}, refused: []int{2}},
		{name: "too many wait where the most do", limit: 2, each: 1, queue: 2,
			takers: []taker{{from: more}, {from: few}, {from: many}, {from: many}, {from: few}},
			now:    []int{0, 1}, then: []int{3}, refused: []int{2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newSlots(tt.limit, tt.each, tt.queue)
				var got, refused []int
				releases := map[int]func(){}
				for i, taker := range tt.takers {
					go func() {
						ctx := ctx
						if taker.waitTimeout > 0 {
							limited, cancel := context.WithTimeout(ctx, taker.waitTimeout)
							defer cancel()
							ctx = limited
						}
						release, ok := s.acquire(ctx, taker.from)
						switch {
						case ok:
							got, releases[i] = append(got, i), release
						case ctx.Err() == nil || taker.waitTimeout > 0:
							refused = append(refused, i)
						}
					}()
					synctest.Wait() // they come one after the other
				}
				if diff := cmp.Diff(tt.now, got); diff != "" {
					t.Errorf("who has a place (-want +got):\n%s", diff)
				}
				<-time.After(time.Minute)
				got = nil
				release := releases[0]
				release()
				release() // nobody gets it twice
				synctest.Wait()
				if diff := cmp.Diff(tt.then, got); diff != "" {
					t.Errorf("whose turn it is then (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.refused, refused); diff != "" {
					t.Errorf("who is refused (-want +got):\n%s", diff)
				}

				cancel()
				synctest.Wait()
				for _, release := range releases {
					release()
				}
				if s.taken != 0 || s.queued != 0 || len(s.holders) != 0 {
					t.Errorf("nobody has anything, and %d places are taken, %d wait, and %d have something", s.taken, s.queued, len(s.holders))
				}
			})
		})
	}
}
