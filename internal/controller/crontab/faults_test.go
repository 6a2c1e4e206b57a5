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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// creationCounter counts created Jobs by scheduled time, including deleted Jobs.
type creationCounter struct {
	mu      sync.Mutex
	created map[time.Duration]int
}

// countCreations counts the Jobs of the CronTab that are created from now on, by their scheduled time relative to a minute.
func (f *fixture) countCreations(since time.Time) *creationCounter {
	l := &creationCounter{created: map[time.Duration]int{}}
	f.Client = interceptor.NewClient(f.Client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, obj, opts...)
			job, ok := obj.(*batchv1.Job)
			if ok && err == nil && metav1.GetControllerOf(job).Name == f.Key.Name {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.created[runOf(job).at.Sub(since)]++
			}
			return err
		},
	})
	f.Restart()
	return l
}

// deleteRecordedJobs finishes and deletes all Jobs whose run the status records, as a user or an
// expired TTL could.
func (f *fixture) deleteRecordedJobs() {
	f.Helper()
	cronTab := f.Object()
	recorded := progressFromStatus(&cronTab.Status)
	var existing []types.UID
	for _, job := range f.jobs() {
		existing = append(existing, job.UID)
	}
	for _, job := range f.jobs() {
		r := runOf(&job)
		if !metav1.IsControlledBy(&job, cronTab) {
			if slices.Contains(recorded.followed, job.UID) {
				f.deleteJobNow(&job) // as the CronTab that it belongs to would
			}
			continue
		}
		if r.follows != nil {
			isOpen := func(uid types.UID) bool {
				return slices.Contains(existing, uid) && !slices.Contains(recorded.followed, uid)
			}
			if !slices.ContainsFunc(r.follows, isOpen) && !slices.ContainsFunc(recorded.queued, r.at.Equal) {
				f.deleteJobNow(&job)
			}
			continue
		}
		if !r.backfill.IsZero() {
			times, _ := newSchedule(cronTab)
			backfill := must(times.NewBackfill(cronTab.Spec.Backfill))
			if backfill.IsReached(r.at, recorded.backfill.reached) {
				f.deleteJobNow(&job)
			}
			continue
		}
		if !r.at.After(recorded.decidedUntil) && !slices.ContainsFunc(recorded.queued, r.at.Equal) {
			f.deleteJobNow(&job)
		}
	}
}

// TestStories tells that minutes pass, and that each Job is deleted as soon as it is recorded. In the end,
// each scheduled time has had exactly one Job.
func TestStories(t *testing.T) {
	table := stories.Table[*fixture]{New: startFixture, Steps: 10, Always: (*fixture).expectNoRunTwice, Finish: func(f *fixture) {
		f.Restart()
		for range 6 { // the queued runs, and the remaining cleanup
			f.reconcileUntilStable()
			f.deleteRecordedJobs()
		}
	}}
	for _, story := range []struct {
		name   string
		change mutation
	}{
		{"Allow", withPolicy(stablev1.AllowConcurrent)},
		{"Queue", withPolicy(stablev1.QueueConcurrent)},
		{"TTL", withTTL},
	} {
		table.Stories = append(table.Stories, stories.Story[*fixture]{
			Name:   story.name,
			Before: func(f *fixture) { f.create(withMissedRuns(stablev1.AllMissedRuns, 100), story.change) },
			Happen: func(f *fixture) {
				f.since, _ = f.startOfMinute()
				f.deleteRecordedJobs()
				f.runs = f.countCreations(f.since)
				f.Clock.SetTime(f.since.Add(time.Minute))
			},
			End: func(f *fixture) {
				want := map[time.Duration]int{}
				for run := time.Minute; run <= f.Clock.Now().Sub(f.since); run += time.Minute {
					want[run] = 1
				}
				if diff := cmp.Diff(want, f.runs.created); diff != "" {
					f.Errorf("Jobs of each time (-want +got):\n%s", diff)
				}
				if got := f.Object().Status.MissedRuns; got != 0 {
					f.Errorf("missedRuns is %d, want 0", got)
				}
			},
		})
	}
	table.Run(t)
}

func (f *fixture) expectNoRunTwice() {
	f.Helper()
	for run, jobs := range f.runs.created {
		if jobs > 1 {
			f.Errorf("%d Jobs for the run at %v", jobs, run)
		}
	}
}

func withTTL(c *stablev1.CronTab) {
	ttl := int32(0)
	pod := c.Spec.JobTemplate.PodSpec
	c.Spec.JobTemplate = &stablev1.JobTemplate{Spec: &batchv1.JobSpec{
		TTLSecondsAfterFinished: &ttl, Template: corev1.PodTemplateSpec{Spec: pod},
	}}
}

func TestStaleCacheRepeatsNoRun(t *testing.T) {
	f := newFixture(t)
	f.create(withPolicy(stablev1.ForbidConcurrent), withSchedule("* * * * * *"))
	jobs := f.jobs()
	f.finishJob(&jobs[0], batchv1.JobComplete)
	f.reconcileUntilStable()
	l := f.countCreations(time.Time{})
	f.Freeze()
	stale := f.Object()
	for range 20 {
		if _, err := f.Reconcile(t.Context(), stale.DeepCopy()); err != nil {
			t.Fatalf("Reconcile: %v", err)
		}
		f.Clock.Step(time.Second)
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
	stopped, stale := f.Reconciler, f.Object()
	stopped.wakeups.noteSleep(maxSleep) // the timer has not fired yet when the process resumes
	f.Restart()
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
	stale := f.Object()
	f.advanceToNextRun()
	f.reconcileUntilStable()
	f.deleteRecordedJobs()
	f.Restart()
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
	f.Do(f.Client.Delete(t.Context(), f.Object()))
	cronTab := newCronTab()
	cronTab.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: cronTab.Name}
	f.Do(f.Client.Create(t.Context(), cronTab))
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
	f.ExpectReady("True", stablev1.ReasonScheduled)
}

func TestUnavailableAPIServer(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	minute, _ := f.startOfMinute()
	away := true
	broken := errors.New("connection refused")
	f.UseClient(harness.Observe(f.Client, func(r harness.Request) error {
		if away && r.Verb == "create" {
			return broken
		}
		return nil
	}, func(harness.Request) error { return nil }))
	key := f.Key
	for range 10 {
		f.Clock.Step(20 * time.Second)
		_, err := f.reconcile()
		if err == nil { // a late run was postponed
			_, err = f.reconcile()
		}
		if f.Clock.Now().Sub(minute) >= time.Minute && !errors.Is(err, broken) {
			t.Fatalf("Reconcile returns %v", err)
		}
		if wait := f.wakeups.at(key).Sub(f.Clock.Now()); wait > time.Minute {
			t.Fatalf("the next attempt is in %v", wait)
		}
	}
	f.ExpectReady("False", stablev1.ReasonJobWriteFailed)
	away = false
	f.reconcileUntilStable()
	m := time.Minute
	if diff := cmp.Diff([]time.Duration{0, m, 2 * m, 3 * m}, f.jobTimes(minute)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	f.ExpectReady("True", stablev1.ReasonScheduled)
}

// After an absence, a late run goes behind those that are due now, once, and not for long.
func TestLateRunIsPostponedOnce(t *testing.T) {
	f := newFixture(t)
	f.create()
	f.Clock.Step(10*time.Minute + 20*time.Second)
	f.Restart()
	jobs := len(f.jobs())
	result, err := f.reconcile()
	f.Do(err)
	if result.RequeueAfter == 0 || result.Priority == nil || *result.Priority != latePriority || len(f.jobs()) != jobs {
		t.Errorf("Reconcile returns %+v, with %d new Jobs", result, len(f.jobs())-jobs)
	}
	if wait := f.wakeups.at(f.Key).Sub(f.Clock.Now()); wait != maxPostponement {
		t.Errorf("it wakes up after %v", wait)
	}
	if _, err := f.reconcile(); err != nil || len(f.jobs()) != jobs+1 {
		t.Errorf("then: %v, %d new Jobs", err, len(f.jobs())-jobs)
	}
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
		f.ExpectReady("False", test.reason)
		f.Clock.Step(time.Hour)
		f.reconcileUntilStable()
	}
	f.update(withSchedule("* * * * *"))
	f.reconcileUntilStable()
	f.ExpectReady("True", stablev1.ReasonScheduled)
	if jobs := f.jobs(); len(jobs) != 1 {
		t.Errorf("there are %d Jobs, want the one from before the change", len(jobs))
	}
}

func TestIdleCronTabDoesNotChange(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 0 1 1 *"))
	before := f.Object()
	for range 10 {
		f.Clock.Step(time.Hour)
		f.reconcileUntilStable()
	}
	f.Restart()
	f.reconcileUntilStable()
	if diff := cmp.Diff(before, f.Object()); diff != "" {
		t.Errorf("the idle CronTab changed (-before +after):\n%s", diff)
	}
}

// CronTabs with slow creations, caused by a hanging admission webhook, share a limited number of
// workers.
func TestSlowCreationsAreLimited(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	minute, _ := f.startOfMinute()
	f.UseClient(harness.Observe(f.Client, func(r harness.Request) error {
		if r.Verb == "create" {
			f.Clock.Step(createTimeout)
			return context.DeadlineExceeded
		}
		return nil
	}, func(harness.Request) error { return nil }))
	f.reconcileUntilStable()
	f.Clock.SetTime(minute.Add(time.Minute))
	if _, err := f.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Reconcile returns %v", err)
	}
	f.Wrote()
	for range maxSlowCreates {
		if !f.slowCreates.TryAcquire(1) {
			t.Fatal("no worker is free")
		}
	}
	if result, err := f.reconcile(); err != nil || !result.IsZero() || len(f.Writes) > 0 {
		t.Errorf("Reconcile returns %v, %v and writes %v", result, err, f.Writes)
	}
	if wait := f.wakeups.at(f.Key).Sub(f.Clock.Now()); wait != slowRetryInterval {
		t.Errorf("the next attempt is in %v", wait)
	}
	f.slowCreates.Release(1)
	if _, err := f.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a free worker, Reconcile returns %v", err)
	}
}
