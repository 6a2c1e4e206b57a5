package crontab

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAlarm(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	a := newAlarm(clock)
	key := func(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
	rung := make(chan []client.ObjectKey)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.run(ctx, func(keys ...client.ObjectKey) { rung <- keys })
	}()
	expect := func(what string, names ...string) {
		t.Helper()
		var got []string
		for _, key := range <-rung {
			got = append(got, key.Name)
		}
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// step lets time pass for one that sleeps.
	step := func(d time.Duration) {
		for range 50 {
			for !clock.HasWaiters() {
				runtime.Gosched()
			}
			clock.Step(d / 50)
		}
	}

	a.set(key("third"), noon.Add(3*time.Second))
	a.set(key("first"), noon.Add(time.Second))
	a.set(key("second"), noon.Add(2*time.Second))
	a.set(key("never"), noon.Add(2*time.Second))
	a.set(key("never"), time.Time{})
	a.set(key("unknown"), time.Time{})
	go step(4 * time.Second)
	expect("after a second", "first")
	expect("after two", "second")
	expect("after three", "third")

	if at := a.at(key("first")); !at.IsZero() {
		t.Errorf("it is still set to %v", at)
	}
	a.set(key("past"), noon)
	expect("what is past already", "past")
	if stalled := a.stalledAt(); !stalled.IsZero() {
		t.Errorf("it stood still at %v", stalled)
	}

	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	clock.Step(time.Hour)
	a.set(key("late"), noon)
	expect("after an hour", "late")
	if a.stalledAt().IsZero() {
		t.Error("it did not notice that an hour was gone")
	}
	cancel()
	<-ended
}
