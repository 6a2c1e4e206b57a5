package crontab

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// withAfter replaces the schedule by the end of other CronTabs.
func withAfter(condition stablev1.AfterCondition, names ...string) mutation {
	return func(c *stablev1.CronTab) {
		c.Spec.Schedule = ""
		for _, name := range names {
			c.Spec.After = append(c.Spec.After, stablev1.Predecessor{Crontab: name, Condition: condition})
		}
	}
}

// following makes a Job one that follows others.
func following(uids ...string) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		var all []types.UID
		for _, uid := range uids {
			all = append(all, types.UID(uid))
		}
		job.Annotations[stablev1.FollowsAnnotation] = joinUIDs(all)
	}
}

func TestDecideAfter(t *testing.T) {
	good, bad := finishedWith(batchv1.JobComplete), finishedWith(batchv1.JobFailed)
	type jobs map[string][]func(*batchv1.Job)
	// family is what is seen of the CronTabs a and b, and of the one that runs after them.
	type family struct {
		a, b, own jobs
		queuedByB string
		missing   bool
		followed  []types.UID
		queued    []string
		// isAhead means that the cache has an older status.
		isAhead bool
	}
	with := func(f family) func(*stablev1.CronTab) observation {
		return func(c *stablev1.CronTab) observation {
			runsOf := func(prefix string, all jobs) (runs []run) {
				for clock, changes := range all {
					job := jobOf(c, at(clock), changes...)
					job.UID = types.UID(prefix + clock)
					runs = append(runs, runOf(job))
				}
				slices.SortFunc(runs, byTime)
				return runs
			}
			seen := withQueued(observationOf(c, at("11:50:00")), f.queued...)
			for _, p := range c.Spec.After {
				found := predecessor{Predecessor: p, exists: !f.missing, runs: runsOf("a", f.a)}
				if p.Crontab == "b" {
					found.runs = runsOf("b", f.b)
					if f.queuedByB != "" {
						found.queued = []time.Time{at(f.queuedByB)}
					}
				}
				seen.predecessors = append(seen.predecessors, found)
			}
			seen.runs = runsOf("own", f.own)
			seen.progress.followed = f.followed
			seen.recorded = seen.progress.clone()
			if !f.isAhead {
				seen.cached = seen.recorded
			}
			return seen
		}
	}
	one, two := newCronTab(withAfter(stablev1.AfterSucceeded, "a")), newCronTab(withAfter(stablev1.AfterSucceeded, "a", "b"))
	waits := decision{DecidedUntil: "11:50:00", LastScheduled: "11:50:00"}
	starts := func(queue ...string) decision {
		d := decision{Start: queue[0], DecidedUntil: "11:50:00", LastScheduled: "11:50:00", Queue: queue, Queued: len(queue)}
		if len(queue) > 1 {
			d.WakeAt = "11:59:30"
		}
		return d
	}
	type test struct {
		decideTest
		followed []types.UID
	}
	for _, test := range []test{
		{decideTest{name: "the other has not run", cronTab: one, seen: with(family{}), want: waits}, nil},
		{decideTest{name: "the other is active", cronTab: one, seen: with(family{a: jobs{"11:58:00": nil}}), want: waits}, nil},
		{
			decideTest{name: "the other has succeeded", cronTab: one, seen: with(family{a: jobs{"11:58:00": {good}}}), want: starts("11:58:00")},
			[]types.UID{"a11:58:00"},
		},
		{
			decideTest{name: "the other has failed", cronTab: one, seen: with(family{a: jobs{"11:58:00": {bad}}}), want: waits},
			[]types.UID{"a11:58:00"},
		},
		{
			decideTest{name: "it has to fail", cronTab: newCronTab(withAfter(stablev1.AfterFailed, "a")), seen: with(family{a: jobs{"11:57:00": {good}, "11:58:00": {bad}}}), want: starts("11:58:00")},
			[]types.UID{"a11:57:00", "a11:58:00"},
		},
		{
			decideTest{name: "it has to end", cronTab: newCronTab(withAfter(stablev1.AfterCompleted, "a")), seen: with(family{a: jobs{"11:57:00": {good}, "11:58:00": {bad}}}), want: starts("11:57:00", "11:58:00")},
			[]types.UID{"a11:57:00", "a11:58:00"},
		},
		{decideTest{name: "it ended before the last change", cronTab: one, seen: with(family{a: jobs{"11:49:40": {good}}}), want: waits}, nil},
		{
			decideTest{name: "its Job was followed", cronTab: one, seen: with(family{a: jobs{"11:58:00": {good}}, followed: []types.UID{"a11:58:00"}}), want: waits},
			[]types.UID{"a11:58:00"},
		},
		{
			decideTest{name: "our Job is the proof that it was followed", cronTab: one, want: waits,
				seen: with(family{a: jobs{"11:58:00": {good}}, own: jobs{"11:58:00": {following("a11:58:00"), good}}, queued: []string{"11:58:00"}})},
			[]types.UID{"a11:58:00"},
		},
		{decideTest{name: "the Job of a queued time is gone", cronTab: one, seen: with(family{queued: []string{"11:58:00"}}), want: starts("11:58:00")}, nil},
		{
			decideTest{name: "our Job for a time whose Job is gone is proof and no longer needed", cronTab: newCronTab(withAfter(stablev1.AfterSucceeded, "a"), func(c *stablev1.CronTab) { *c.Spec.SuccessfulJobsHistoryLimit = 0 }),
				want: decision{DecidedUntil: "11:50:00", LastScheduled: "11:50:00", Prune: []string{"11:57:00"}},
				seen: with(family{own: jobs{"11:57:00": {following(), good}, "11:58:00": {following(), good}}, queued: []string{"11:58:00"}})},
			nil,
		},
		{
			decideTest{name: "Jobs that an old cache does not have are not gone", cronTab: one, want: starts("11:58:00"),
				seen: with(family{followed: []types.UID{"a11:58:00"}, queued: []string{"11:58:00"}, isAhead: true})},
			[]types.UID{"a11:58:00"},
		},
		{decideTest{name: "Jobs that are gone are forgotten", cronTab: one, seen: with(family{followed: []types.UID{"a11:58:00"}}), want: waits}, nil},
		{
			decideTest{name: "it ran again", cronTab: one, seen: with(family{a: jobs{"11:58:00": {good}}, own: jobs{"11:58:00": {following("earlier"), good}}}),
				want: decision{DecidedUntil: "11:50:00", LastScheduled: "11:50:00", Queue: []string{"11:58:00"}, Queued: 1, Replace: []string{"11:58:00"}}},
			[]types.UID{"a11:58:00"},
		},
		{
			decideTest{name: "it ran again while our run is active", cronTab: one, seen: with(family{a: jobs{"11:58:00": {good}}, own: jobs{"11:58:00": {following("earlier")}}}),
				want: decision{DecidedUntil: "11:50:00", LastScheduled: "11:50:00", Queue: []string{"11:58:00"}, Queued: 1}},
			[]types.UID{"a11:58:00"},
		},
		{decideTest{name: "one of two has no run yet", cronTab: two, seen: with(family{a: jobs{"11:58:00": {good}}}), want: waits}, nil},
		{decideTest{name: "one of two is active", cronTab: two, seen: with(family{a: jobs{"11:58:00": {good}}, b: jobs{"11:58:00": nil}}), want: waits}, nil},
		{
			decideTest{name: "both have succeeded", cronTab: two, seen: with(family{a: jobs{"11:58:00": {good}}, b: jobs{"11:58:00": {good}}}), want: starts("11:58:00")},
			[]types.UID{"a11:58:00", "b11:58:00"},
		},
		{
			decideTest{name: "one of two has failed", cronTab: two, seen: with(family{a: jobs{"11:58:00": {good}}, b: jobs{"11:58:00": {bad}}}), want: waits},
			[]types.UID{"a11:58:00", "b11:58:00"},
		},
		{
			decideTest{name: "Forbid keeps the latest time", cronTab: newCronTab(withAfter(stablev1.AfterSucceeded, "a"), withPolicy(stablev1.ForbidConcurrent)),
				seen: with(family{a: jobs{"11:57:00": {good}, "11:58:00": {good}}}),
				want: decision{Start: "11:58:00", DecidedUntil: "11:50:00", LastScheduled: "11:50:00", Queue: []string{"11:58:00"}, Queued: 1, Missed: 1}},
			[]types.UID{"a11:57:00", "a11:58:00"},
		},
		{decideTest{name: "suspended", cronTab: newCronTab(withAfter(stablev1.AfterSucceeded, "a"), withSuspend), seen: with(family{a: jobs{"11:58:00": {good}}}), want: waits}, nil},
		{
			decideTest{name: "ten times may be in doubt", cronTab: two, want: waits, seen: with(family{a: jobs{
				"11:51:00": {good}, "11:51:10": {good}, "11:51:20": {good}, "11:51:30": {good}, "11:51:40": {good}, "11:51:50": {good},
				"11:52:00": {good}, "11:52:10": {good}, "11:52:20": {good}, "11:52:30": {good}, "11:52:40": {good}, "11:52:50": {good},
			}, queuedByB: "11:51:10"})},
			[]types.UID{"a11:51:00"},
		},
	} {
		test.now = "11:59:30"
		t.Run(test.name, func(t *testing.T) {
			test.run(t)
			seen := test.seen(test.cronTab)
			seen.schedule, seen.invalid = newSchedule(test.cronTab)
			seen.postponed = true
			p := decide(test.cronTab, seen, at(test.now))
			if p.start != nil {
				follows := runOf(newJob(test.cronTab, &batchv1.JobTemplateSpec{}, p.start, time.UTC)).follows
				if unknown := slices.DeleteFunc(slices.Clone(test.followed), func(uid types.UID) bool { return !seen.lacks(uid) }); follows == nil || !isSubset(unknown, follows) {
					t.Errorf("the Job says that it follows %q", follows)
				}
			}
			if diff := cmp.Diff(test.followed, p.progress.followed, cmp.Comparer(func(a, b []types.UID) bool { return slices.Equal(a, b) })); diff != "" {
				t.Errorf("followed (-want +got):\n%s", diff)
			}
		})
	}
}

// A Job stays as long as a CronTab that runs after it may need it.
func TestAwaitedJobs(t *testing.T) {
	c := newCronTab()
	ended, running := runOf(jobOf(c, noon, finishedWith(batchv1.JobComplete))), runOf(jobOf(c, noon))
	next := func(change func(*stablev1.CronTab)) []stablev1.CronTab {
		made := newCronTab(withAfter(stablev1.AfterSucceeded, "tick"))
		made.Status.ScheduledUntil = &metav1.Time{Time: noon}
		change(made)
		return []stablev1.CronTab{*made}
	}
	for _, test := range []struct {
		name string
		run  run
		next []stablev1.CronTab
		want bool
	}{
		{"none runs after it", ended, nil, false},
		{"one runs after it", ended, next(func(*stablev1.CronTab) {}), true},
		{"one runs after it when it has ended", running, next(func(*stablev1.CronTab) {}), true},
		{"it was followed", ended, next(func(c *stablev1.CronTab) { c.Status.FollowedJobs = []types.UID{ended.uid} }), false},
		{"it ended before", ended, next(func(c *stablev1.CronTab) { c.Status.ScheduledUntil.Time = noon.Add(time.Minute) }), false},
		{"it may have ended before", ended, next(func(c *stablev1.CronTab) { c.Status.ScheduledUntil = nil }), true},
		{"that is suspended", ended, next(withSuspend), false},
		{"that is being deleted", ended, next(func(c *stablev1.CronTab) { c.DeletionTimestamp = &metav1.Time{Time: noon} }), false},
	} {
		if got := (observation{successors: test.next}).isAwaited(test.run); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestStoriesOfAfter tells that two CronTabs have run twice, and that each Job is deleted as soon as it is recorded. Whatever
// happens at a write, each time has had exactly one Job in the end.
func TestStoriesOfAfter(t *testing.T) {
	table := stories.Table[*fixture]{New: startFixture, Steps: 12, Always: (*fixture).expectNoRunTwice, Finish: func(f *fixture) {
		f.Restart()
		for range 6 {
			f.reconcileUntilStable()
			f.Clock.Step(handoverPeriod)
			f.deleteRecordedJobs()
		}
	}}
	for name, change := range map[string]mutation{
		"Allow": withPolicy(stablev1.AllowConcurrent),
		"Queue, TTL": func(c *stablev1.CronTab) {
			c.Spec.ConcurrencyPolicy = stablev1.QueueConcurrent
			withTTL(c)
		},
	} {
		table.Stories = append(table.Stories, stories.Story[*fixture]{
			Name: name,
			Before: func(f *fixture) {
				for _, name := range []string{"first", "second"} {
					other := newCronTab(withSuspend)
					other.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: name}
					f.Do(f.Client.Create(f.Context(), other))
				}
				f.create(withAfter(stablev1.AfterSucceeded, "first", "second"), change)
				f.since, _ = f.startOfMinute()
				for _, name := range []string{"first", "second"} {
					f.endRuns(name, -2*time.Minute, -time.Minute)
				}
				f.runs = f.countCreations(f.since)
			},
			Happen: func(f *fixture) { f.Clock.Step(time.Second) },
			End: func(f *fixture) {
				want := map[time.Duration]int{-2 * time.Minute: 1, -time.Minute: 1}
				if diff := cmp.Diff(want, f.runs.created); diff != "" {
					f.Errorf("Jobs of each time (-want +got):\n%s", diff)
				}
				if status := f.Object().Status; status.MissedRuns != 0 || len(status.FollowedJobs) != 0 {
					f.Errorf("the status is %s", asJSON(status))
				}
			},
		})
	}
	table.Run(t)
}

// endRuns creates Jobs of another CronTab that have succeeded, at times relative to f.since.
func (f *fixture) endRuns(name string, times ...time.Duration) {
	f.Helper()
	other := &stablev1.CronTab{}
	f.Do(f.Client.Get(f.Context(), types.NamespacedName{Namespace: f.Namespace, Name: name}, other))
	for _, after := range times {
		job := jobOf(other, f.since.Add(after))
		job.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: job.Name, Labels: job.Labels, Annotations: job.Annotations, OwnerReferences: job.OwnerReferences}
		f.Do(f.Client.Create(f.Context(), job))
		f.finishJob(job, batchv1.JobComplete)
	}
}

// The webhook refuses a CronTab that would close a circle.
func TestTrialOfCircle(t *testing.T) {
	api := harness.Memory(t, harness.Scheme(t, stablev1.AddToScheme), Indexes...)
	other := newCronTab(withAfter(stablev1.AfterSucceeded, "tick"))
	other.Name, other.UID = "tock", ""
	if err := api.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	trial := NewTrial(&fakeAPI{}, api, clocktesting.NewFakePassiveClock(noon))
	if mistakes, _ := trial.Try(t.Context(), newCronTab(withAfter(stablev1.AfterSucceeded, "other"))); len(mistakes) > 0 {
		t.Errorf("got %v, want nothing", mistakes)
	}
	mistakes, _ := trial.Try(t.Context(), newCronTab(withAfter(stablev1.AfterSucceeded, "tock")))
	if want := `spec.after: Invalid value: "tock": CronTabs would run after each other in a circle: tick, tock, tick`; len(mistakes) != 1 || mistakes[0].Error() != want {
		t.Errorf("got %v, want %s", mistakes, want)
	}
}
