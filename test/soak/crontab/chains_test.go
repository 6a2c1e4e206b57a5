//go:build soak

package crontab

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

const (
	// chains is the number of CronTabs that run after others: each after one that misses no run and has the longest step.
	chains = 12
	// backfills is the number of CronTabs that only backfill, and backfillTimes the times of each.
	backfills, backfillTimes = 4, 30
)

// createChains creates the CronTabs that run after others, and those that backfill. No run of them is missed, so each has exactly one Job,
// whatever happens.
func (w *world) createChains(t *testing.T) {
	t.Helper()
	create := func(name string, i int, change func(*stablev1.CronTabSpec)) {
		made := newCronTab(Object{Name: name, Step: time.Minute}, i)
		change(&made.Spec)
		if _, err := w.keelson.StableV1().CronTabs(w.namespace).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range chains {
		create(fmt.Sprintf("after-%03d", i), i, func(spec *stablev1.CronTabSpec) {
			spec.Schedule = ""
			spec.After = []stablev1.Predecessor{{Crontab: w.before(i).Name, Condition: stablev1.AfterCompleted}}
			spec.ConcurrencyPolicy = []stablev1.ConcurrencyPolicy{stablev1.AllowConcurrent, stablev1.QueueConcurrent}[i%2]
		})
	}
	for i := range backfills {
		create(fmt.Sprintf("backfill-%03d", i), i, func(spec *stablev1.CronTabSpec) {
			spec.Schedule, spec.Suspend = "* * * * *", ptr.To(true)
			now := time.Now().Truncate(time.Minute)
			spec.Backfill = &stablev1.Backfill{
				RequestedAt: metav1.NewTime(now), From: metav1.NewTime(now.Add((1 - backfillTimes) * time.Minute)), To: metav1.NewTime(now),
				MaxConcurrency: int32(1 + i), Order: []stablev1.BackfillOrder{stablev1.EarliestFirst, stablev1.LatestFirst}[i%2],
			}
		})
	}
}

// before returns the CronTab that one of chains runs after.
func (w *world) before(i int) Object { return w.objects[6+i/6*len(steps)+i%6] }

// isChained reports whether a CronTab is one of createChains.
func isChained(name string) bool { return !strings.HasPrefix(name, "soak-") }

// isOfSchedule reports whether the schedule of a CronTab determines when a Job starts.
func isOfSchedule(job *batchv1.Job) bool {
	owner := metav1.GetControllerOf(job)
	return owner == nil || !isChained(owner.Name)
}

// awaitChains waits until all backfills are done. Their runs wait for those of schedules, so it fails only if none is done for two minutes.
func (w *world) awaitChains(t *testing.T) {
	t.Helper()
	began := time.Now()
	for most, since := math.MinInt, began; ; {
		done, open := 0, 0
		for i := range backfills {
			made, err := w.keelson.StableV1().CronTabs(w.namespace).Get(t.Context(), fmt.Sprintf("backfill-%03d", i), metav1.GetOptions{})
			if err != nil || made.Status.Backfill == nil || made.Status.Backfill.FinishTime == nil {
				open++
			}
			if err == nil && made.Status.Backfill != nil {
				done += int(made.Status.Backfill.Done)
			}
		}
		switch {
		case open == 0:
			t.Logf("the backfills have finished after %s", time.Since(began).Round(time.Millisecond))
			return
		case done-open > most:
			most, since = done-open, time.Now()
		case time.Since(since) > 2*time.Minute:
			t.Fatalf("%d backfills have not finished: %d of %d times are done, and no more for 2 minutes", open, done, backfills*backfillTimes)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Second):
		}
	}
}

// awaitFollowed waits until each run that must be followed has been. The CronTabs before the others are at rest.
func (w *world) awaitFollowed(t *testing.T) {
	t.Helper()
	eventually(t, "all runs are followed", func() bool {
		runs, _ := w.record.runs()
		for i := range chains {
			got := map[int64]bool{}
			for _, r := range runs[fmt.Sprintf("after-%03d", i)] {
				got[r.Nominal.Unix()] = true
			}
			for _, r := range runs[w.before(i).Name] {
				if !r.Removed && !got[r.Nominal.Unix()] {
					return false
				}
			}
		}
		return true
	})
	w.awaitRest(t)
}

// judgeChains compares the Jobs of the CronTabs of createChains with those that they must have, and removes them from runs.
func (w *world) judgeChains(t *testing.T, runs map[string][]Run) {
	t.Helper()
	followed := 0
	for i := range chains {
		name := fmt.Sprintf("after-%03d", i)
		want := map[time.Time]int{}
		for _, r := range runs[w.before(i).Name] {
			if !r.Removed { // a Job that was deleted by hand may be gone before it was followed
				want[r.Nominal.UTC()] = 1
			}
		}
		followed += len(want)
		expectOnce(t, name, want, runs[name])
		delete(runs, name)
	}
	for i := range backfills {
		name := fmt.Sprintf("backfill-%03d", i)
		made, err := w.keelson.StableV1().CronTabs(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[time.Time]int{}
		for at := made.Spec.Backfill.From.UTC(); !at.After(made.Spec.Backfill.To.Time); at = at.Add(time.Minute) {
			want[at] = 1
		}
		expectOnce(t, name, want, runs[name])
		delete(runs, name)
	}
	t.Logf("%d CronTabs after others: at least %d runs; %d backfills of %d times", chains, followed, backfills, backfillTimes)
	if followed < chains {
		t.Errorf("only %d runs had to be followed, too few for a conclusion", followed)
	}
}

// expectOnce fails the test unless each wanted time has a run, and no time has two.
func expectOnce(t *testing.T, name string, want map[time.Time]int, runs []Run) {
	t.Helper()
	got := map[time.Time]int{}
	for _, r := range runs {
		got[r.Nominal.UTC()]++
	}
	for at := range want {
		if got[at] == 0 {
			t.Errorf("%s: no Job for %s", name, at)
		}
	}
	for at, jobs := range got {
		if jobs > 1 {
			t.Errorf("%s: %d Jobs for %s", name, jobs, at)
		}
	}
}
