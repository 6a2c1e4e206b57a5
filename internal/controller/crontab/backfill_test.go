package crontab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// withBackfill requests a backfill at 11:59:20 of the times from 11:50 to 11:52.
func withBackfill(changes ...func(*stablev1.Backfill)) mutation {
	return func(c *stablev1.CronTab) {
		c.Spec.Backfill = &stablev1.Backfill{
			RequestedAt: metav1.NewTime(at("11:59:20")), From: metav1.NewTime(at("11:50:00")), To: metav1.NewTime(at("11:52:00")),
			Reprocess: stablev1.ReprocessNone, MaxConcurrency: 1, Order: stablev1.EarliestFirst,
		}
		for _, change := range changes {
			change(c.Spec.Backfill)
		}
	}
}

func reprocess(mode stablev1.Reprocess) func(*stablev1.Backfill) {
	return func(b *stablev1.Backfill) { b.Reprocess = mode }
}

func latestFirst(b *stablev1.Backfill) { b.Order = stablev1.LatestFirst }

// ofBackfill makes a Job one of the backfill.
func ofBackfill(job *batchv1.Job) {
	job.Annotations[stablev1.BackfillRequestedAtAnnotation] = formatRequest(at("11:59:20"))
}

func TestDecideBackfill(t *testing.T) {
	good, bad := finishedWith(batchv1.JobComplete), finishedWith(batchv1.JobFailed)
	waiting := decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "12:00:00", WakeAt: "12:00:00"}
	is := func(change func(*decision)) decision {
		d := waiting
		change(&d)
		return d
	}
	starts := func(run, reached string) decision {
		return is(func(d *decision) {
			d.Start, d.Queued, d.WakeAt, d.Reached = run+" of the backfill", 1, "11:59:30", reached
		})
	}
	type jobs map[string][]func(*batchv1.Job)
	// with returns an observation with Jobs, of a backfill that has reached a time.
	with := func(reached string, jobs jobs) func(*stablev1.CronTab) observation {
		return func(c *stablev1.CronTab) observation {
			var all []*batchv1.Job
			for clock, changes := range jobs {
				all = append(all, jobOf(c, at(clock), changes...))
			}
			seen := observationOf(c, at("11:59:00"), all...)
			if reached != "" {
				seen.progress.backfill = backfill{requested: at("11:59:20"), reached: at(reached)}
				seen.recorded = seen.progress.clone()
			}
			return seen
		}
	}
	for _, test := range []decideTest{
		{name: "the earliest time", cronTab: newCronTab(withBackfill()), want: starts("11:50:00", "")},
		{name: "the latest time first", cronTab: newCronTab(withBackfill(latestFirst)), want: starts("11:52:00", "")},
		{name: "also while suspended", cronTab: newCronTab(withBackfill(), withSuspend), want: decision{
			Start: "11:50:00 of the backfill", DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Queued: 1, WakeAt: "11:59:30",
		}},
		{name: "the next time", cronTab: newCronTab(withBackfill()), seen: with("11:50:00", nil), want: starts("11:51:00", "11:50:00")},
		{name: "the next time before", cronTab: newCronTab(withBackfill(latestFirst)), seen: with("11:52:00", nil), want: starts("11:51:00", "11:52:00")},
		{
			name: "after a lost status update", cronTab: newCronTab(withBackfill()), seen: with("", jobs{"11:51:00": {ofBackfill, good}}),
			want: starts("11:52:00", "11:51:00"),
		},
		{
			name: "as many are active as may be", cronTab: newCronTab(withBackfill()), seen: with("11:50:00", jobs{"11:50:00": {ofBackfill}}),
			want: is(func(d *decision) { d.Reached = "11:50:00" }),
		},
		{
			name: "concurrencyPolicy counts other runs", cronTab: newCronTab(withBackfill(), withPolicy(stablev1.ForbidConcurrent)), seen: with("11:50:00", jobs{"11:59:00": nil}),
			want: is(func(d *decision) { d.Reached = "11:50:00" }),
		},
		{
			name: "scheduled runs go first", cronTab: newCronTab(withBackfill()), now: "12:00:00",
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "times that have Jobs do not run", cronTab: newCronTab(withBackfill()), seen: with("", jobs{"11:50:00": {good}, "11:51:00": {bad}}),
			want: starts("11:52:00", "11:51:00"),
		},
		{
			name: "times that have failed run again", cronTab: newCronTab(withBackfill(reprocess(stablev1.ReprocessFailed))), seen: with("", jobs{"11:50:00": {good}, "11:51:00": {bad}}),
			want: is(func(d *decision) { d.Reached, d.Replace = "11:50:00", []string{"11:51:00"} }),
		},
		{
			name: "all times run again", cronTab: newCronTab(withBackfill(reprocess(stablev1.ReprocessAll))), seen: with("", jobs{"11:50:00": {good}, "11:51:00": {bad}}),
			want: is(func(d *decision) { d.Replace = []string{"11:50:00"} }),
		},
		{
			name: "but not one that is active", cronTab: newCronTab(withBackfill(reprocess(stablev1.ReprocessAll))), seen: with("", jobs{"11:50:00": nil}),
			want: starts("11:51:00", "11:50:00"),
		},
		{
			name: "the Job of a time that runs again is being deleted", cronTab: newCronTab(withBackfill(reprocess(stablev1.ReprocessAll))), seen: with("", jobs{"11:50:00": {good, terminating}}),
			want: waiting,
		},
		{
			name: "the last run is active", cronTab: newCronTab(withBackfill()), seen: with("11:52:00", jobs{"11:52:00": {ofBackfill}}),
			want: is(func(d *decision) { d.Reached = "11:52:00" }),
		},
		{
			name: "the last run has finished", cronTab: newCronTab(withBackfill()), seen: with("11:52:00", jobs{"11:52:00": {ofBackfill, good}}),
			want: is(func(d *decision) { d.Reached, d.Finished = "11:52:00", "11:59:30" }),
		},
		{
			name: "another backfill starts over", cronTab: newCronTab(withBackfill(func(b *stablev1.Backfill) { b.RequestedAt = metav1.NewTime(at("11:59:25")) })),
			seen: with("11:52:00", jobs{"11:50:00": {ofBackfill, good}}), want: starts("11:51:00", "11:50:00"),
		},
		{
			name: "no time after the request", cronTab: newCronTab(withBackfill(func(b *stablev1.Backfill) {
				b.From, b.To = metav1.NewTime(at("11:59:00")), metav1.NewTime(at("13:00:00"))
			})),
			want: starts("11:59:00", ""),
		},
		{
			name: "too many times", cronTab: newCronTab(withBackfill(func(b *stablev1.Backfill) { b.From = metav1.NewTime(at("11:00:00").AddDate(-1, 0, 0)) })),
			want: waiting,
		},
		{
			name: "a Job stays while the backfill has to know of it, or is its proof", cronTab: newCronTab(withBackfill(), func(c *stablev1.CronTab) { *c.Spec.SuccessfulJobsHistoryLimit = 0 }),
			seen: with("11:50:00", jobs{"11:49:00": {good}, "11:50:00": {ofBackfill, good}, "11:51:00": {ofBackfill, good}, "11:52:00": {good}, "11:53:00": {good}}),
			want: is(func(d *decision) {
				d.Reached, d.Finished, d.Prune = "11:52:00", "11:59:30", []string{"11:49:00", "11:50:00", "11:53:00"}
			}),
		},
		{
			name: "no run while too many have failed", cronTab: newCronTab(withBackfill(), withFailures(1)),
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00")), "11:57:10")
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Stopped: true, Failed: []string{"11:57:10"}},
		},
	} {
		if test.now == "" {
			test.now = "11:59:30"
		}
		t.Run(test.name, test.run)
	}
}

// TestStoriesOfBackfill tells that a backfill is requested, and that each Job is deleted as soon as it is recorded. Whatever happens at a
// write, each time of the range has had exactly one Job in the end.
func TestStoriesOfBackfill(t *testing.T) {
	table := stories.Table[*fixture]{New: startFixture, Steps: 12, Always: func(f *fixture) {
		f.expectNoRunTwice()
		f.finishJobs() // a run that is not known to be of this backfill would run again
	}, Finish: func(f *fixture) {
		f.Restart()
		for range 6 {
			f.reconcileUntilStable()
			f.finishJobs()
			f.deleteRecordedJobs()
		}
		f.reconcileUntilStable()
	}}
	for name, change := range map[string]func(*stablev1.Backfill){
		"earliest first":   func(*stablev1.Backfill) {},
		"several at once":  func(b *stablev1.Backfill) { b.MaxConcurrency, b.Order = 3, stablev1.LatestFirst },
		"all of them anew": reprocess(stablev1.ReprocessAll),
	} {
		table.Stories = append(table.Stories, stories.Story[*fixture]{
			Name:   name,
			Before: func(f *fixture) { f.create(withSuspend, withTTL) },
			Happen: func(f *fixture) {
				f.since, _ = f.startOfMinute()
				f.runs = f.countCreations(f.since)
				f.update(func(c *stablev1.CronTab) {
					c.Spec.Backfill = &stablev1.Backfill{
						RequestedAt: metav1.NewTime(f.Clock.Now()), From: metav1.NewTime(f.since.Add(-time.Hour)), To: metav1.NewTime(f.since.Add(-58 * time.Minute)),
					}
					change(c.Spec.Backfill)
				})
			},
			End: func(f *fixture) {
				want := map[time.Duration]int{-60 * time.Minute: 1, -59 * time.Minute: 1, -58 * time.Minute: 1}
				if diff := cmp.Diff(want, f.runs.created); diff != "" {
					f.Errorf("Jobs of each time (-want +got):\n%s", diff)
				}
				if status := f.Object().Status.Backfill; status == nil || status.Total != 3 || status.Done != 3 || status.FinishTime == nil {
					f.Errorf("the status is %s", asJSON(status))
				}
				for _, event := range f.Events() {
					if strings.HasPrefix(event, "Normal SuccessfulCreate") {
						f.Errorf("a run of a backfill has the event %q", event)
					}
				}
			},
		})
	}
	table.Run(t)
}

// finishJobs lets all Jobs succeed that are active.
func (f *fixture) finishJobs() {
	f.Helper()
	for _, job := range f.jobs() {
		if runOf(&job).phase == active {
			f.finishJob(&job, batchv1.JobComplete)
		}
	}
}
