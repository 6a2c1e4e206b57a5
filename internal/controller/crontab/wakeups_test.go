package crontab

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/clocks"
)

// jumpingClock is a clock that can be set, or that has been through a suspension of the machine:
// timers and monotonic readings do not advance.
type jumpingClock struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *jumpingClock) Now() time.Time {
	now := time.Now()
	return clocks.Reading(now.Add(time.Duration(c.ahead.Load())), now.Sub(time.Unix(0, 0)))
}

// jump sets the clock.
func (c *jumpingClock) jump(by time.Duration) { c.ahead.Add(int64(by)) }

func TestWakeups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type ring struct {
			After time.Duration
			Names []string
		}
		began := time.Now().Round(0) // a whole second
		clock := &jumpingClock{}
		a := newWakeups(clock)
		key := func(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
		rung := make(chan ring)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(rung)
			a.run(ctx, func(keys ...client.ObjectKey) {
				r := ring{After: clock.Now().Round(0).Sub(began)}
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
		expect("after a second", time.Second, "first")
		expect("after two", 2*time.Second, "moved", "second")
		// This is longer than maxSleep.
		expect("after seven", 7*time.Second, "third")

		if at := a.at(key("first")); !at.IsZero() {
			t.Errorf("wakeup is still set to %v", at)
		}
		a.set(key("past"), began)
		expect("what is past already", 7*time.Second, "past")
		a.set(key("later"), began.Add(time.Hour))
		synctest.Wait()
		a.set(key("sooner"), began.Add(8*time.Second))
		expect("what was set while it slept", 8*time.Second, "sooner")
		if stalled := a.lastStall(); !stalled.IsZero() {
			t.Errorf("stall detected at %v", stalled)
		}

		synctest.Wait() // until it sleeps
		clock.jump(time.Hour)
		expect("after an hour that its timer has not seen", 8*time.Second+time.Hour+maxSleep, "later")
		if want := began.Add(8*time.Second + time.Hour + maxSleep); !a.lastStall().Equal(want) {
			t.Errorf("stall detected at %v, want %v", a.lastStall(), want)
		}
		cancel()
		if r, more := <-rung; more {
			t.Errorf("woke after cancellation: %v", r)
		}
	})
}

// After a suspension, a reconcile may run before the timer fires, and must detect the stall.
func TestStallIsDetectedBeforeTimerFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpingClock{}
		a := newWakeups(clock)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		rung := make(chan client.ObjectKey)
		go a.run(ctx, func(keys ...client.ObjectKey) { rung <- keys[0] })
		synctest.Wait() // until it sleeps

		clock.jump(-time.Hour)
		if stalled := a.lastStall(); !stalled.IsZero() {
			t.Errorf("clock set back: stall detected at %v", stalled)
		}
		clock.jump(2 * time.Hour)
		resumed := clock.Now()
		if stalled := a.lastStall(); !stalled.Equal(resumed) {
			t.Errorf("stall detected at %v, want %v", stalled, resumed)
		}
		<-time.After(maxSleep)
		a.set(client.ObjectKey{Name: "now"}, clock.Now())
		<-rung
		if stalled := a.lastStall(); !stalled.Equal(resumed) {
			t.Errorf("stall detected twice, the second time at %v", stalled)
		}
	})
}

// Times set before a suspension are ordered by the wall clock.
func TestWakeupsAfterSuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpingClock{}
		a := newWakeups(clock)
		a.set(client.ObjectKey{Name: "retry"}, clock.Now().Add(30*time.Second))
		clock.jump(time.Minute)
		if due, _ := a.popDue(); len(due) != 1 {
			t.Errorf("a retry after 30 s is not due after a minute")
		}
	})
}

// A CronTab that this process has not looked at yet, or whose spec has changed, may be due: it does not wait behind those that are.
func TestNewAndChangedCronTabsWaitForNobody(t *testing.T) {
	f := newFixture(t)
	queue := priorityqueue.New[reconcile.Request]("test")
	defer queue.ShutDown()
	f.create()
	changed := f.Object().DeepCopy()
	changed.Generation++
	handle := f.cronTabHandler()
	for name, send := range map[string]func(){
		"new": func() { handle.Create(t.Context(), event.CreateEvent{Object: f.Object()}, queue) },
		"changed": func() {
			handle.Update(t.Context(), event.UpdateEvent{ObjectOld: f.Object(), ObjectNew: changed}, queue)
		},
	} {
		send()
		item, priority, _ := queue.GetWithPriority()
		queue.Done(item)
		if item.NamespacedName != f.Key || priority != duePriority {
			t.Errorf("%s: %v with priority %d", name, item, priority)
		}
	}
}

// A run that waits for an active one starts before cleanup of others once that has ended. Without such a run, only cleanup waits.
func TestBlockedRunIsNotCleanup(t *testing.T) {
	for name, test := range map[string]struct {
		runs     int
		priority int
	}{
		"nothing waits": {0, kube.LowPriority},
		"a run waits":   {1, latePriority},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			queue := priorityqueue.New[reconcile.Request]("test")
			defer queue.ShutDown()
			f.create(withPolicy(stablev1.QueueConcurrent))
			for range test.runs {
				f.advanceToNextRun()
			}
			f.reconcileUntilStable()
			running := f.jobs()[0]
			ended := running.DeepCopy()
			f.finishJob(ended, batchv1.JobComplete)
			f.jobHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: &running, ObjectNew: ended}, queue)
			item, priority, _ := queue.GetWithPriority()
			queue.Done(item)
			if item.NamespacedName != f.Key || priority != test.priority {
				t.Errorf("%v with priority %d, want %d", item, priority, test.priority)
			}
		})
	}
}
