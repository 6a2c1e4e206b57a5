package crontab

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
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
	clock := clocktesting.NewFakeClock(noon.Add(-headStart))
	g := gate{clock: clock}
	var all sync.WaitGroup
	var in atomic.Int32
	var first atomic.Bool
	for range 16 {
		all.Go(func() {
			through := g.await(t.Context(), noon)
			if now := clock.Now(); now.Before(noon) {
				t.Errorf("open at %v", now)
			}
			if alone := in.Add(1) == 1; !alone && !first.Load() {
				t.Error("another one is let in before the first is through")
			}
			first.Store(true)
			through()
		})
	}
	all.Wait()
	if now := clock.Now(); !now.Equal(noon) {
		t.Errorf("more than one has slept: it is %v", now)
	}
	g.await(t.Context(), noon.Add(-time.Hour))()
	g.await(t.Context(), noon.Add(time.Hour))() // somebody has set the clock back
	if now := clock.Now(); !now.Equal(noon) {
		t.Errorf("somebody slept until %v", now)
	}
}

// Others do not wait for long for one that does not come through.
func TestGateOpensInAnyCase(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon.Add(-headStart))
	g := gate{clock: clock}
	stuck := g.await(t.Context(), noon)
	defer stuck()
	clock.SetTime(noon.Add(-1)) // as others that were a moment earlier see it
	let := make(chan struct{})
	go func() {
		defer close(let)
		g.await(t.Context(), noon)()
	}()
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(headStart)
	select {
	case <-let:
		t.Error("the second was let in too soon")
	default:
	}
	clock.Step(1)
	<-let

	clock.SetTime(noon.Add(-1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.await(ctx, noon)()
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
