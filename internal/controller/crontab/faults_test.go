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

// creationCounter counts created Jobs by scheduled time, including deleted Jobs.
type creationCounter struct {
	mu      sync.Mutex
	created map[time.Duration]int
}

// countCreations counts the Jobs created from now on, by their scheduled time relative to a minute.
func (f *fixture) countCreations(since time.Time) *creationCounter {
	l := &creationCounter{created: map[time.Duration]int{}}
	f.client = interceptor.NewClient(f.client, interceptor.Funcs{
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
	f.restart()
	return l
}

// deleteRecordedJobs finishes and deletes all Jobs whose run the status records, as a user or an
// expired TTL could.
func (f *fixture) deleteRecordedJobs() {
	f.Helper()
	recorded := progressFromStatus(&f.cronTab().Status)
	for _, job := range f.jobs() {
		if r := runOf(&job); !r.at.After(recorded.decidedUntil) && !slices.ContainsFunc(recorded.queued, r.at.Equal) {
			f.deleteJobNow(&job)
		}
	}
}

// Whatever write fails or is the last of a process, each scheduled time gets exactly one Job, even
// if Jobs are deleted as early as possible.
func TestCrashAtAnyWriteRepeatsAndLosesNoRun(t *testing.T) {
	type killed struct{}
	for _, fault := range []struct {
		name   string
		moment harness.Moment
		raise  func() error
	}{
		{"killed before a write", harness.Before, func() error { panic(killed{}) }},
		{"killed after a write", harness.After, func() error { panic(killed{}) }},
		{"a write is lost", harness.Before, func() error { return errors.New("connection reset") }},
		{"the response to a write is lost", harness.After, func() error { return errors.New("connection reset") }},
	} {
		for _, with := range []struct {
			name   string
			change mutation
		}{
			{"Allow", withMissedRuns(stablev1.AllMissedRuns, 100)},
			{"Queue", withPolicy(stablev1.QueueConcurrent)},
			{"TTL", withTTL},
		} {
			t.Run(fault.name+", "+with.name, func(t *testing.T) {
				f := newFixture(t)
				f.create(with.change)
				first, _ := f.startOfMinute()
				for _, job := range f.jobs() {
					f.deleteJobNow(&job)
				}
				f.reconcileUntilStable()
				l := f.countCreations(first)
				want := map[time.Duration]int{}
				for step := 0; ; step++ {
					faulty, reached := harness.OnWrite(f.client, step, fault.moment, fault.raise)
					f.useClient(faulty)
					f.reconcileIgnoringErrors(killed{})
					for range 2 {
						f.deleteRecordedJobs()
						minute := f.clock.Now().Truncate(time.Minute).Add(time.Minute)
						want[minute.Sub(first)] = 1
						f.clock.SetTime(minute)
						f.reconcileIgnoringErrors(killed{})
						f.reconcileIgnoringErrors(killed{})
						f.clock.Step(2 * time.Second)
						f.reconcileIgnoringErrors(killed{})
					}
					f.restart()
					for range 3 { // two queued runs, and the remaining cleanup
						f.reconcileUntilStable()
						f.deleteRecordedJobs()
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
				if got := f.cronTab().Status.MissedRuns; got != 0 {
					t.Errorf("missedRuns is %d, want 0", got)
				}
			})
		}
	}
}

// reconcileIgnoringErrors reconciles once and recovers from a simulated kill with a restart.
func (f *fixture) reconcileIgnoringErrors(killed any) {
	defer func() {
		if r := recover(); r != nil {
			if r != killed {
				panic(r)
			}
			f.restart()
		}
	}()
	_, _ = f.reconcile()
}

func withTTL(c *stablev1.CronTab) {
	ttl := int32(0)
	pod := c.Spec.JobTemplate.PodSpec
	c.Spec.JobTemplate = &stablev1.JobTemplate{Spec: &batchv1.JobSpec{
		TTLSecondsAfterFinished: &ttl, Template: corev1.PodTemplateSpec{Spec: pod},
	}}
}

// freezeCache makes the Reconciler read a snapshot of the current objects.
func (f *fixture) freezeCache() {
	f.Helper()
	f.useClient(harness.Frozen(f, f.client, f.namespace, Indexes, &batchv1.JobList{}, &stablev1.CronTabList{}))
}

func TestStaleCacheRepeatsNoRun(t *testing.T) {
	f := newFixture(t)
	f.create(withPolicy(stablev1.ForbidConcurrent), withSchedule("* * * * * *"))
	jobs := f.jobs()
	f.finishJob(&jobs[0], batchv1.JobComplete)
	f.reconcileUntilStable()
	l := f.countCreations(time.Time{})
	f.freezeCache()
	stale := f.cronTab()
	for range 20 {
		if _, err := f.Reconcile(t.Context(), stale.DeepCopy()); err != nil {
			t.Fatalf("Reconcile: %v", err)
		}
		f.clock.Step(time.Second)
	}
	if len(l.created) > 1 {
		t.Errorf("with concurrencyPolicy Forbid, more than one run was started: %v", l.created)
	}
	for scheduled, count := range l.created {
		if count != 1 {
			t.Errorf("%d Jobs for %v", count, scheduled)
		}
	}
}

// A process that was stopped resumes after another one has done its work and the Jobs are gone.
func TestStoppedProcessRepeatsNoRun(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	minute, _ := f.startOfMinute()
	l := f.countCreations(minute)
	f.reconcileUntilStable()
	stopped, stale := f.Reconciler, f.cronTab()
	stopped.wakeups.noteSleep(maxSleep) // the timer has not fired yet when the process resumes
	f.restart()
	f.reconcileUntilStable()
	for range 3 {
		f.advanceToNextRun()
		f.reconcileUntilStable()
		f.deleteRecordedJobs()
	}
	if _, err := stopped.Reconcile(t.Context(), stale); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	m := time.Minute
	if diff := cmp.Diff(map[time.Duration]int{m: 1, 2 * m: 1, 3 * m: 1}, l.created); diff != "" {
		t.Errorf("Jobs of each time (-want +got):\n%s", diff)
	}
}

// A new leader with a stale cache reads the CronTab from the API server before it starts a run.
func TestNewLeaderWithStaleCacheRepeatsNoRun(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	minute, _ := f.startOfMinute()
	l := f.countCreations(minute)
	f.reconcileUntilStable()
	stale := f.cronTab()
	f.advanceToNextRun()
	f.reconcileUntilStable()
	f.deleteRecordedJobs()
	f.restart()
	if _, err := f.Reconcile(t.Context(), stale); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	if diff := cmp.Diff(map[time.Duration]int{time.Minute: 1}, l.created); diff != "" {
		t.Errorf("Jobs of each time (-want +got):\n%s", diff)
	}
}

func TestRecreatedCronTabStartsOver(t *testing.T) {
	f := newFixture(t)
	f.create()
	old := f.jobs()[0]
	f.must(f.client.Delete(t.Context(), f.cronTab()))
	cronTab := newCronTab()
	cronTab.ObjectMeta = metav1.ObjectMeta{Namespace: f.namespace, Name: cronTab.Name}
	f.must(f.client.Create(t.Context(), cronTab))
	// The name of its first run is taken by a Job of the deleted CronTab.
	result, err := f.reconcile()
	if err != nil || result.RequeueAfter != kube.StalePause {
		t.Errorf("Reconcile returns %v, %v", result, err)
	}
	f.deleteJobNow(&old)
	f.reconcileUntilStable()
	if job := f.jobs()[0]; job.UID == old.UID || !metav1.IsControlledBy(&job, cronTab) {
		t.Errorf("the Job is %s", asJSON(job.ObjectMeta))
	}
	f.expectReady("True", stablev1.ReasonScheduled)
}

func TestUnavailableAPIServer(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	minute, _ := f.startOfMinute()
	away := true
	broken := errors.New("connection refused")
	f.useClient(harness.Observe(f.client, func(r harness.Request) error {
		if away && r.Verb == "create" {
			return broken
		}
		return nil
	}, func(harness.Request) error { return nil }))
	key := client.ObjectKeyFromObject(f.cronTab())
	for range 10 {
		f.clock.Step(20 * time.Second)
		if _, err := f.reconcile(); f.clock.Now().Sub(minute) >= time.Minute && !errors.Is(err, broken) {
			t.Fatalf("Reconcile returns %v", err)
		}
		if wait := f.wakeups.at(key).Sub(f.clock.Now()); wait > time.Minute {
			t.Fatalf("the next attempt is in %v", wait)
		}
	}
	f.expectReady("False", stablev1.ReasonJobWriteFailed)
	away = false
	f.reconcileUntilStable()
	m := time.Minute
	if diff := cmp.Diff([]time.Duration{0, m, 2 * m, 3 * m}, f.jobTimes(minute)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	f.expectReady("True", stablev1.ReasonScheduled)
}

// An invalid schedule that the API server accepted is reported in a condition.
func TestInvalidSchedule(t *testing.T) {
	f := newFixture(t)
	f.create()
	for _, test := range []struct {
		name   string
		change mutation
		reason string
	}{
		{"a reversed range", withSchedule("30-10 * * * *"), stablev1.ReasonInvalidSchedule},
		{"no time ever matches", withSchedule("0 0 31 2 *"), stablev1.ReasonNeverRuns},
	} {
		f.update(test.change)
		f.reconcileUntilStable()
		f.expectReady("False", test.reason)
		f.clock.Step(time.Hour)
		f.reconcileUntilStable()
	}
	f.update(withSchedule("* * * * *"))
	f.reconcileUntilStable()
	f.expectReady("True", stablev1.ReasonScheduled)
	if jobs := f.jobs(); len(jobs) != 1 {
		t.Errorf("there are %d Jobs, want the one from before the change", len(jobs))
	}
}

func TestIdleCronTabDoesNotChange(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 0 1 1 *"))
	before := f.cronTab()
	for range 10 {
		f.clock.Step(time.Hour)
		f.reconcileUntilStable()
	}
	f.restart()
	f.reconcileUntilStable()
	if diff := cmp.Diff(before, f.cronTab()); diff != "" {
		t.Errorf("the idle CronTab changed (-before +after):\n%s", diff)
	}
}

// CronTabs with slow creations, caused by a hanging admission webhook, share a limited number of
// workers.
func TestSlowCreationsAreLimited(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	minute, _ := f.startOfMinute()
	f.useClient(harness.Observe(f.client, func(r harness.Request) error {
		if r.Verb == "create" {
			f.clock.Step(createTimeout)
			return context.DeadlineExceeded
		}
		return nil
	}, func(harness.Request) error { return nil }))
	f.reconcileUntilStable()
	f.clock.SetTime(minute.Add(time.Minute))
	if _, err := f.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Reconcile returns %v", err)
	}
	f.writes = nil
	for range maxSlowCreates {
		if !f.slowCreates.TryAcquire(1) {
			t.Fatal("no worker is free")
		}
	}
	if result, err := f.reconcile(); err != nil || !result.IsZero() || len(f.writes) > 0 {
		t.Errorf("Reconcile returns %v, %v and writes %v", result, err, f.writes)
	}
	if wait := f.wakeups.at(client.ObjectKeyFromObject(f.cronTab())).Sub(f.clock.Now()); wait != slowRetryInterval {
		t.Errorf("the next attempt is in %v", wait)
	}
	f.slowCreates.Release(1)
	if _, err := f.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a free worker, Reconcile returns %v", err)
	}
}
