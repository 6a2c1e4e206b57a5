package crontab

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jumpingClock is a clock that can be set; its timers do not notice.
type jumpingClock struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *jumpingClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type ring struct {
			After time.Duration
			Names []string
		}
		began := time.Now() // a whole second
		clock := &jumpingClock{}
		a := newAlarm(clock)
		key := func(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
		rung := make(chan ring)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(rung)
			a.run(ctx, func(keys ...client.ObjectKey) {
				r := ring{After: clock.Now().Sub(began)}
				for _, key := range keys {
					r.Names = append(r.Names, key.Name)
				}
				slices.Sort(r.Names)
				rung <- r
			})
		}()
		expect := func(what string, after time.Duration, names ...string) {
			t.Helper()
			if diff := cmp.Diff(ring{after, names}, <-rung); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}

		a.set(key("third"), began.Add(7*time.Second))
		a.set(key("first"), began.Add(time.Second))
		a.set(key("second"), began.Add(2*time.Second))
		a.set(key("moved"), began.Add(time.Second))
		a.set(key("moved"), began.Add(2*time.Second))
		a.set(key("never"), began.Add(2*time.Second))
		a.set(key("never"), time.Time{})
		a.set(key("unknown"), time.Time{})
		expect("after a second", time.Second-headStart, "first")
		expect("after two", 2*time.Second-headStart, "moved", "second")
		// Longer than it sleeps.
		expect("after seven", 7*time.Second-headStart, "third")

		if at := a.at(key("first")); !at.IsZero() {
			t.Errorf("it is still set to %v", at)
		}
		a.set(key("past"), began)
		expect("what is past already", 7*time.Second-headStart, "past")
		a.set(key("later"), began.Add(time.Hour))
		synctest.Wait()
		a.set(key("sooner"), began.Add(8*time.Second))
		expect("what was set while it slept", 8*time.Second-headStart, "sooner")
		if stalled := a.stalledAt(); !stalled.IsZero() {
			t.Errorf("it stood still at %v", stalled)
		}

		synctest.Wait() // it sleeps
		clock.ahead.Store(int64(time.Hour))
		expect("after an hour that its timer has not seen", 8*time.Second-headStart+time.Hour+longestSleep, "later")
		if want := began.Add(8*time.Second - headStart + time.Hour + longestSleep); !a.stalledAt().Equal(want) {
			t.Errorf("it noticed at %v that an hour was gone, want %v", a.stalledAt(), want)
		}
		cancel()
		if r, more := <-rung; more {
			t.Errorf("it rang after its end: %v", r)
		}
	})
}
