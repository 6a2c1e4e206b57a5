package crontab

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestAhead(t *testing.T) {
	tests := []struct {
		name      string
		now, want time.Time
	}{
		{"a second begins in a moment", noon.Add(-headStart), noon},
		{"in less", noon.Add(-1), noon},
		{"not yet", noon.Add(-headStart - 1), noon.Add(-headStart - 1)},
		{"it has begun", noon, noon},
		{"a moment ago", noon.Add(1), noon.Add(1)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := ahead(tc.now); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Who rings early finds what is due; who did not would ring again and again until it is.
func TestRingAt(t *testing.T) {
	for offset, want := range map[time.Duration]time.Duration{
		0:                      -headStart,
		time.Second:            time.Second - headStart,
		time.Millisecond:       time.Millisecond,
		500 * time.Millisecond: 500 * time.Millisecond,
		-time.Millisecond:      -time.Millisecond,
	} {
		due := noon.Add(offset)
		ring := ringAt(due, noon.Add(-time.Minute))
		if got := ring.Sub(noon); got != want {
			t.Errorf("for %v it rings at %v, want %v", offset, got, want)
		}
		if ahead(ring).Before(due) {
			t.Errorf("at %v nothing is due that is at %v", ring, due)
		}
		if again := ringAt(due, ring); !again.Equal(due) {
			t.Errorf("when it has rung, it rings again at %v, want %v", again, due)
		}
	}
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		due := began.Add(headStart)
		g := gate{clock: clock.RealClock{}}
		var all sync.WaitGroup
		var in atomic.Int32
		var first atomic.Bool
		for range 16 {
			all.Go(func() {
				through := g.await(t.Context(), due)
				if now := time.Now(); !now.Equal(due) {
					t.Errorf("open after %v, want %v", now.Sub(began), headStart)
				}
				if alone := in.Add(1) == 1; !alone && !first.Load() {
					t.Error("another one is let in before the first is through")
				}
				first.Store(true)
				through()
			})
		}
		all.Wait()
		g.await(t.Context(), due.Add(-time.Hour))()
		g.await(t.Context(), due.Add(time.Hour))() // somebody has set the clock back
		if now := time.Now(); !now.Equal(due) {
			t.Errorf("somebody slept for %v", now.Sub(due))
		}
	})
}

// Others do not wait for long for one that does not come through.
func TestGateOpensInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(headStart)
		g := gate{clock: clock.RealClock{}}
		first := make(chan func())
		go func() { first <- g.await(t.Context(), due) }()
		synctest.Wait()
		g.await(t.Context(), due)() // the first is awake, and has not come through
		if now := time.Now(); !now.Equal(due.Add(headStart)) {
			t.Errorf("the second was let in after %v, want %v", now.Sub(due), headStart)
		}
		(<-first)()

		next := due.Add(time.Second)
		time.Sleep(time.Until(next.Add(-headStart))) //nolint:forbidigo // in a bubble, where it takes no time
		go func() { first <- g.await(t.Context(), next) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g.await(ctx, next)()
		if now := time.Now(); !now.Equal(next.Add(-headStart)) {
			t.Errorf("one whose context had ended waited for %v", now.Sub(next.Add(-headStart)))
		}
		(<-first)()
	})
}

func TestExactClockSleeps(t *testing.T) {
	var clock exactClock
	began := clock.Now()
	clock.Sleep(3 * time.Millisecond)
	if slept := clock.Since(began); slept < 3*time.Millisecond {
		t.Errorf("slept %v, want 3ms", slept)
	}
	clock.Sleep(-time.Second)
}
