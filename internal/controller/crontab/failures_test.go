package crontab

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func withFailures(limit int32) mutation {
	return func(c *stablev1.CronTab) { c.Spec.SuspendAfterFailures = &limit }
}

// withStreak adds runs to an observation that failed at some times, according to the status.
func withStreak(cronTab *stablev1.CronTab, seen observation, clocks ...string) observation {
	s := streak{specHash: specHash(cronTab), since: at("11:00:00")}
	for _, clock := range clocks {
		s.failed = append(s.failed, failedRun{"tick-" + clock, at(clock)})
	}
	if len(clocks) >= int(*cronTab.Spec.SuspendAfterFailures) {
		seen.progress.hash += stoppedSuffix
	}
	seen.progress.streak = s
	seen.recorded = seen.progress.clone()
	return seen
}

func TestDecideAfterFailures(t *testing.T) {
	good, bad := finishedWith(batchv1.JobComplete), finishedWith(batchv1.JobFailed)
	jobAt := func(c *stablev1.CronTab, clock string, changes ...func(*batchv1.Job)) *batchv1.Job {
		return jobOf(c, at(clock), changes...)
	}
	waiting := decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "12:00:00", WakeAt: "12:00:00"}
	is := func(change func(*decision)) decision {
		d := waiting
		change(&d)
		return d
	}
	stopped := func(failed ...string) decision {
		return decision{DecidedUntil: "11:59:30", LastScheduled: "11:59:00", ScheduleChanged: true, Stopped: true, Failed: failed}
	}
	for _, test := range []decideTest{
		{
			name: "fewer failures than the limit", cronTab: newCronTab(withFailures(3)), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:58:00", bad)), "11:57:10")
			},
			want: is(func(d *decision) { d.Failed = []string{"11:57:10", "11:58:10"} }),
		},
		{
			name: "as many failures as the limit, and what was due is dropped", cronTab: newCronTab(withFailures(2)), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:58:00", bad)), "11:57:10"), "11:59:00")
			},
			want: func() decision { d := stopped("11:57:10", "11:58:10"); d.Missed = 1; return d }(),
		},
		{
			name: "one failure", cronTab: newCronTab(withFailures(1)), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:58:00", bad)))
			},
			want: stopped("11:58:10"),
		},
		{
			name: "a success ends the row", cronTab: newCronTab(withFailures(2)), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:56:00", good), jobAt(c, "11:57:00", bad)), "11:55:10")
			},
			want: is(func(d *decision) { d.Failed = []string{"11:57:10"} }),
		},
		{
			name: "a success at the same second ends the row", cronTab: newCronTab(withFailures(1)), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				twin := jobAt(c, "11:57:00", onDemand, good)
				twin.Name += "0"
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:57:00", bad), twin))
			},
			want: waiting,
		},
		{
			name: "nothing runs while it is stopped", cronTab: newCronTab(withFailures(1)), now: "12:30:00",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00")), "11:58:10")
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Stopped: true, Failed: []string{"11:58:10"}},
		},
		{
			name: "a run on demand starts while it is stopped", cronTab: newCronTab(withFailures(1), withRequest("2026-03-04T12:29:31Z")), now: "12:30:00",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00")), "11:58:10")
			},
			want: decision{
				Start: "12:29:31 on demand", DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Queued: 1, Stopped: true, Failed: []string{"11:58:10"},
			},
		},
		{
			name: "the success of a scheduled run does not continue the schedule", cronTab: newCronTab(withFailures(1)), now: "12:30:00",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:59:00", good)), "11:58:10")
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Stopped: true, Failed: []string{"11:58:10"}},
		},
		{
			name: "that of a run on demand does, without the runs since", cronTab: newCronTab(withFailures(1)), now: "12:30:30",
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "12:30:00", onDemand, good)), "11:58:10")
			},
			want: decision{DecidedUntil: "12:30:30", LastScheduled: "11:59:00", ScheduleChanged: true, Next: "12:31:00", WakeAt: "12:31:00"},
		},
		{
			name: "a change of the spec continues the schedule, although the failed Jobs are there", now: "12:30:30",
			cronTab: newCronTab(withFailures(1), func(c *stablev1.CronTab) { c.Spec.ResumeRequestedAt = ptr.To(metav1.NewTime(at("12:30:00"))) }),
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(newCronTab(withFailures(1)), observationOf(c, at("11:59:00"), jobAt(c, "11:58:00", bad)), "11:58:10")
			},
			want: decision{DecidedUntil: "12:30:30", LastScheduled: "11:59:00", ScheduleChanged: true, Next: "12:31:00", WakeAt: "12:31:00"},
		},
		{
			name: "without the field failures do not count", cronTab: newCronTab(), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, at("11:59:00"), jobAt(c, "11:58:00", bad))
			},
			want: waiting,
		},
		{
			name: "a failed Job stays until the status counts it", now: "11:59:30",
			cronTab: newCronTab(withFailures(2), func(c *stablev1.CronTab) { *c.Spec.FailedJobsHistoryLimit = 0 }),
			seen: func(c *stablev1.CronTab) observation {
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:58:00", bad)))
			},
			want: is(func(d *decision) { d.Failed = []string{"11:58:10"} }),
		},
		{
			name: "and is deleted then", now: "11:59:30",
			cronTab: newCronTab(withFailures(2), func(c *stablev1.CronTab) { *c.Spec.FailedJobsHistoryLimit = 0 }),
			seen: func(c *stablev1.CronTab) observation {
				job := jobAt(c, "11:58:00", bad)
				seen := withStreak(c, observationOf(c, at("11:59:00"), job), "11:58:10")
				seen.progress.streak.failed[0].name = job.Name
				return seen
			},
			want: is(func(d *decision) { d.Failed, d.Prune = []string{"11:58:10"}, []string{"11:58:00"} }),
		},
		{
			name: "a Job cannot expire before its end is counted", cronTab: newCronTab(withFailures(1)), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				expires := func(job *batchv1.Job) { job.Annotations[stablev1.TTLAnnotation] = "0" }
				return withStreak(c, observationOf(c, at("11:59:00"), jobAt(c, "11:57:00", good, expires), jobAt(c, "11:58:00", expires)))
			},
			want: is(func(d *decision) { d.Release = []string{"11:57:00"} }),
		},
	} {
		t.Run(test.name, test.run)
	}
}

// The cache keeps the template in another form than the API, and a request to run is no change.
func TestSpecHash(t *testing.T) {
	full := newCronTab(withFailures(1))
	slim := must(stripCronTab(full)).(*stablev1.CronTab)
	if a, b := specHash(full), specHash(slim); a != b {
		t.Errorf("the hash is %s in the API and %s in the cache", a, b)
	}
	if a, b := specHash(full), specHash(newCronTab(withFailures(1), withRequest("2026-03-04T12:29:31Z"), withValue("region", "eu"), withBackfill())); a != b {
		t.Errorf("the hash is %s without a request and %s with one", a, b)
	}
	other := newCronTab(withFailures(1), func(c *stablev1.CronTab) { c.Spec.JobTemplate.Containers[0].Image = "fixed" })
	if a, b := specHash(full), specHash(other); a == b {
		t.Errorf("the hash is %s with another image too", a)
	}
}

// TestStopsAfterFailures follows a CronTab on the API server until it stops, and each way in which it continues.
func TestStopsAfterFailures(t *testing.T) {
	for name, resume := range map[string]func(f *fixture){
		"a change of the spec": func(f *fixture) {
			f.update(func(c *stablev1.CronTab) { c.Spec.JobTemplate.Containers[0].Image = "fixed" })
		},
		"keelson crontab resume": func(f *fixture) { f.update(func(c *stablev1.CronTab) { crontab.Resume(c, f.Clock.Now()) }) },
		"a run on demand": func(f *fixture) {
			before := len(f.jobs())
			f.update(withRequest(f.Clock.Now().UTC().Format(time.RFC3339)))
			f.reconcileUntilStable()
			f.ExpectReady("False", stablev1.ReasonTooManyFailures)
			jobs := f.jobs()
			if len(jobs) != before+1 {
				f.Fatalf("there are %d Jobs, want %d", len(jobs), before+1)
			}
			for i := range jobs {
				if runOf(&jobs[i]).manual {
					f.finishJob(&jobs[i], batchv1.JobComplete)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.create(withFailures(2))
			for n := range 2 {
				if n > 0 {
					f.advanceToNextRun()
					f.reconcileUntilStable()
				}
				f.ExpectReady("True", stablev1.ReasonScheduled)
				for _, job := range f.jobs() {
					if runOf(&job).phase == active {
						f.Clock.Step(time.Second)
						f.finishJob(&job, batchv1.JobFailed)
					}
				}
				f.reconcileUntilStable()
			}
			f.ExpectReady("False", stablev1.ReasonTooManyFailures)
			last := f.Object().Status.LastScheduleTime
			expectNone := func(when string) {
				t.Helper()
				for _, job := range f.jobs() {
					if r := runOf(&job); !r.manual && r.at.After(last.Time) {
						t.Errorf("%s, the run of %v starts", when, r.at)
					}
				}
			}
			if c := f.Object(); !crontab.IsStopped(c) || *c.Spec.Suspend || c.Status.NextScheduleTime != nil {
				t.Errorf("the status is %s", asJSON(c.Status))
			}
			f.Clock.Step(time.Hour)
			f.Restart()
			f.reconcileUntilStable()
			expectNone("while it is stopped, in a new process")
			resume(f)
			f.Clock.Step(time.Second)
			f.reconcileUntilStable()
			expectNone("when it continues")
			f.ExpectReady("True", stablev1.ReasonScheduled)
			if c := f.Object(); len(c.Status.FailureStreak.Runs) != 0 {
				t.Errorf("the status is %s", asJSON(c.Status))
			}
			f.advanceToNextRun()
			f.reconcileUntilStable()
			if next := f.Object().Status.LastScheduleTime; f.Clock.Since(next.Time) > time.Minute {
				t.Errorf("the next run is that of %v", next)
			}
		})
	}
}

// TestStoriesOfFailures tells that the last run that may fail has failed. Whatever happens at a write, the schedule stops: the Job is
// neither forgotten nor deleted before it is counted.
func TestStoriesOfFailures(t *testing.T) {
	table := stories.Table[*fixture]{New: startFixture, Steps: 10, Always: (*fixture).expectNoRun, Finish: func(f *fixture) {
		f.Restart()
		f.reconcileUntilStable()
	}}
	for name, change := range map[string]mutation{
		"history limit": func(c *stablev1.CronTab) { *c.Spec.FailedJobsHistoryLimit = 0 },
		"TTL":           withTTL,
	} {
		table.Stories = append(table.Stories, stories.Story[*fixture]{
			Name: name,
			Before: func(f *fixture) {
				f.keepsJobs = true
				f.create(withFailures(1), change)
			},
			Happen: func(f *fixture) {
				f.since, _ = f.startOfMinute()
				f.Clock.Step(time.Second)
				for _, job := range f.jobs() {
					f.finishJob(&job, batchv1.JobFailed)
				}
				f.runs = f.countCreations(f.since)
			},
			End: func(f *fixture) {
				f.ExpectReady("False", stablev1.ReasonTooManyFailures)
				if missed := f.Object().Status.MissedRuns; missed != 0 {
					f.Errorf("missedRuns is %d, want 0", missed)
				}
			},
		})
	}
	table.Run(t)
}

func (f *fixture) expectNoRun() {
	f.Helper()
	if len(f.runs.created) > 0 {
		f.Errorf("Jobs of the runs at %v", f.runs.created)
	}
}
