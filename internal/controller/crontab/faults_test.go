package crontab

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// ledger counts how often a Job of each time was created, also of those that are gone.
type ledger struct {
	mu      sync.Mutex
	created map[time.Duration]int
}

// keepLedger counts the Jobs that are created from now on, by their times since a minute.
func (w *world) keepLedger(since time.Time) *ledger {
	l := &ledger{created: map[time.Duration]int{}}
	w.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, obj, opts...)
			if job, ok := obj.(*batchv1.Job); ok && err == nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.created[runOf(job).at.Sub(since)]++
			}
			return err
		},
	})
	w.restart()
	return l
}

// vanish lets all Jobs end and go whose run is in the status: a user deletes them, or
// their time to live is over.
func (w *world) vanish() {
	w.Helper()
	recorded := progressOf(&w.cronTab().Status)
	for _, job := range w.jobs() {
		if r := runOf(&job); !r.at.After(recorded.until) && !slices.ContainsFunc(recorded.waiting, r.at.Equal) {
			w.remove(&job)
		}
	}
}

// Whatever write is the last one of a process, or fails: every nominal time gives exactly
// one Job, even if Jobs go as soon as they may.
func TestAKillAtAnyWriteRepeatsAndLosesNothing(t *testing.T) {
	type killed struct{}
	for _, fault := range []struct {
		name   string
		moment harness.Moment
		raise  func() error
	}{
		{"killed before a write", harness.Before, func() error { panic(killed{}) }},
		{"killed after a write", harness.After, func() error { panic(killed{}) }},
		{"a write is lost", harness.Before, func() error { return errors.New("connection reset") }},
		{"the answer to a write is lost", harness.After, func() error { return errors.New("connection reset") }},
	} {
		for _, with := range []struct {
			name   string
			change change
		}{
			{"Allow", missed(stablev1.AllMissedRuns, 100)},
			{"Queue", policy(stablev1.QueueConcurrent)},
			{"a time to live", withTTL},
		} {
			t.Run(fault.name+", "+with.name, func(t *testing.T) {
				w := newWorld(t)
				w.create(with.change)
				first, _ := w.startOfMinute()
				for _, job := range w.jobs() {
					w.remove(&job)
				}
				w.settle()
				l := w.keepLedger(first)
				want := map[time.Duration]int{}
				for step := 0; ; step++ {
					faulty, reached := harness.OnWrite(w.client, step, fault.moment, fault.raise)
					w.useClient(faulty)
					w.quietly(killed{})
					for range 2 {
						w.vanish()
						minute := w.clock.Now().Truncate(time.Minute).Add(time.Minute)
						want[minute.Sub(first)] = 1
						w.clock.SetTime(minute)
						w.quietly(killed{})
						w.quietly(killed{})
						w.clock.Step(2 * time.Second)
						w.quietly(killed{})
					}
					w.restart()
					for range 3 { // The queue of two, and what is left to tidy up.
						w.settle()
						w.vanish()
					}
					l.mu.Lock()
					if diff := cmp.Diff(want, l.created); diff != "" {
						t.Fatalf("step %d: Jobs of each time (-want +got):\n%s", step, diff)
					}
					l.mu.Unlock()
					if !reached() {
						break
					}
				}
				if got := w.cronTab().Status.MissedRuns; got != 0 {
					t.Errorf("%d runs are said to be missed", got)
				}
			})
		}
	}
}

// quietly reconciles, and ends like a process that is killed.
func (w *world) quietly(killed any) {
	defer func() {
		if r := recover(); r != nil {
			if r != killed {
				panic(r)
			}
			w.restart()
		}
	}()
	_, _ = w.reconcile()
}

func withTTL(c *stablev1.CronTab) {
	ttl := int32(0)
	pod := c.Spec.JobTemplate.PodSpec
	c.Spec.JobTemplate = &stablev1.JobTemplate{Spec: &batchv1.JobSpec{
		TTLSecondsAfterFinished: &ttl, Template: corev1.PodTemplateSpec{Spec: pod},
	}}
}

// freeze makes the Reconciler read only what there is now.
func (w *world) freeze() {
	w.Helper()
	w.useClient(harness.Frozen(w, w.client, w.namespace, Indexes, &batchv1.JobList{}, &stablev1.CronTabList{}))
}

func TestACacheThatIsBehindRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	w.create(policy(stablev1.ForbidConcurrent), schedule("* * * * * *"))
	jobs := w.jobs()
	w.end(&jobs[0], batchv1.JobComplete)
	w.settle()
	l := w.keepLedger(time.Time{})
	w.freeze()
	stale := w.cronTab()
	for range 20 {
		if _, err := w.Reconcile(t.Context(), stale.DeepCopy()); err != nil {
			t.Fatalf("Reconcile: %v", err)
		}
		w.clock.Step(time.Second)
	}
	if len(l.created) > 1 {
		t.Errorf("with concurrencyPolicy Forbid, these were started at a time: %v", l.created)
	}
	for nominal, count := range l.created {
		if count != 1 {
			t.Errorf("%d Jobs for %v", count, nominal)
		}
	}
}

// A process that was stopped finds that another one has done its work, and that the Jobs
// are gone already.
func TestAProcessThatWasStoppedRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	w.create(missed(stablev1.AllMissedRuns, 100))
	minute, _ := w.startOfMinute()
	l := w.keepLedger(minute)
	w.settle()
	stopped, stale := w.Reconciler, w.cronTab()
	stopped.alarm.expect(longestSleep) // and the timer has not fired yet when it goes on
	w.restart()
	w.settle()
	for range 3 {
		w.tick()
		w.settle()
		w.vanish()
	}
	if _, err := stopped.Reconcile(t.Context(), stale); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	m := time.Minute
	if diff := cmp.Diff(map[time.Duration]int{m: 1, 2 * m: 1, 3 * m: 1}, l.created); diff != "" {
		t.Errorf("Jobs of each time (-want +got):\n%s", diff)
	}
}

// A new leader whose cache is behind asks before it starts anything.
func TestANewLeaderWithAnOldCacheRepeatsNothing(t *testing.T) {
	w := newWorld(t)
	w.create(missed(stablev1.AllMissedRuns, 100))
	minute, _ := w.startOfMinute()
	l := w.keepLedger(minute)
	w.settle()
	stale := w.cronTab()
	w.tick()
	w.settle()
	w.vanish()
	w.restart()
	if _, err := w.Reconcile(t.Context(), stale); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	if diff := cmp.Diff(map[time.Duration]int{time.Minute: 1}, l.created); diff != "" {
		t.Errorf("Jobs of each time (-want +got):\n%s", diff)
	}
}

func TestACronTabOfTheSameNameStartsAnew(t *testing.T) {
	w := newWorld(t)
	w.create()
	old := w.jobs()[0]
	w.do(w.client.Delete(t.Context(), w.cronTab()))
	cronTab := newCronTab()
	cronTab.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: cronTab.Name}
	w.do(w.client.Create(t.Context(), cronTab))
	// Its first run has the name of a Job of the earlier one.
	result, err := w.reconcile()
	if err != nil || result.RequeueAfter != kube.StalePause {
		t.Errorf("Reconcile returns %v, %v", result, err)
	}
	w.remove(&old)
	w.settle()
	if job := w.jobs()[0]; job.UID == old.UID || !metav1.IsControlledBy(&job, cronTab) {
		t.Errorf("the Job is %s", asJSON(job.ObjectMeta))
	}
	w.expectReady("True", stablev1.ReasonScheduled)
}

func TestAnAPIThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.create(missed(stablev1.AllMissedRuns, 100))
	minute, _ := w.startOfMinute()
	away := true
	broken := errors.New("connection refused")
	w.useClient(harness.Observe(w.client, func(r harness.Request) error {
		if away && r.Verb == "create" {
			return broken
		}
		return nil
	}, func(harness.Request) error { return nil }))
	key := client.ObjectKeyFromObject(w.cronTab())
	for range 10 {
		w.clock.Step(20 * time.Second)
		if _, err := w.reconcile(); w.clock.Now().Sub(minute) >= time.Minute && !errors.Is(err, broken) {
			t.Fatalf("Reconcile returns %v", err)
		}
		if wait := w.alarm.at(key).Sub(w.clock.Now()); wait > time.Minute {
			t.Fatalf("the next attempt is in %v", wait)
		}
	}
	w.expectReady("False", stablev1.ReasonJobWriteFailed)
	away = false
	w.settle()
	m := time.Minute
	if diff := cmp.Diff([]time.Duration{0, m, 2 * m, 3 * m}, w.times(minute)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	w.expectReady("True", stablev1.ReasonScheduled)
}

// An invalid schedule that got past the API is a condition.
func TestAnInvalidSchedule(t *testing.T) {
	w := newWorld(t)
	w.create()
	for _, test := range []struct {
		name   string
		change change
		reason string
	}{
		{"a range that runs backwards", schedule("30-10 * * * *"), stablev1.ReasonInvalidSchedule},
		{"no time ever matches", schedule("0 0 31 2 *"), stablev1.ReasonNeverRuns},
	} {
		w.change(test.change)
		w.settle()
		w.expectReady("False", test.reason)
		w.clock.Step(time.Hour)
		w.settle()
	}
	w.change(schedule("* * * * *"))
	w.settle()
	w.expectReady("True", stablev1.ReasonScheduled)
	if jobs := w.jobs(); len(jobs) != 1 {
		t.Errorf("there are %d Jobs, and one was due before", len(jobs))
	}
}

func TestNothingFlaps(t *testing.T) {
	w := newWorld(t)
	w.create(schedule("0 0 1 1 *"))
	before := w.cronTab()
	for range 10 {
		w.clock.Step(time.Hour)
		w.settle()
	}
	w.restart()
	w.settle()
	if diff := cmp.Diff(before, w.cronTab()); diff != "" {
		t.Errorf("nothing happened, and the CronTab changed (-before +after):\n%s", diff)
	}
}

// A CronTab whose Jobs take the API server long, because an admission webhook hangs, has
// but a part of the workers.
func TestSlowOnesLeaveRoomForOthers(t *testing.T) {
	w := newWorld(t)
	w.create(missed(stablev1.AllMissedRuns, 100))
	minute, _ := w.startOfMinute()
	w.useClient(harness.Observe(w.client, func(r harness.Request) error {
		if r.Verb == "create" {
			w.clock.Step(createTimeout)
			return context.DeadlineExceeded
		}
		return nil
	}, func(harness.Request) error { return nil }))
	w.settle()
	w.clock.SetTime(minute.Add(time.Minute))
	if _, err := w.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Reconcile returns %v", err)
	}
	w.writes = nil
	for range slowLane {
		if !w.slow.enter() {
			t.Fatal("there is no room")
		}
	}
	if result, err := w.reconcile(); err != nil || !result.IsZero() || len(w.writes) > 0 {
		t.Errorf("Reconcile returns %v, %v and writes %v", result, err, w.writes)
	}
	if wait := w.alarm.at(client.ObjectKeyFromObject(w.cronTab())).Sub(w.clock.Now()); wait != slowPause {
		t.Errorf("it looks again in %v", wait)
	}
	w.slow.leave()
	if _, err := w.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("when there is room, Reconcile returns %v", err)
	}
}
