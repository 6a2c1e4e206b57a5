package crontab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/clocks"
)

// decision is the readable form of a plan.
type decision struct {
	Start, Blocked              string
	DecidedUntil, LastScheduled string
	Queue                       []string
	Queued, Missed              int
	Overflow                    bool
	Replace, Prune              []string
	Release                     []string
	Next, WakeAt                string
	ScheduleChanged             bool
	Stopped                     bool
	Failed                      []string
	Reached, Finished           string
}

func clockOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	if t.Truncate(24 * time.Hour).Equal(noon.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

func startOf(s *pendingRun) string {
	switch {
	case s == nil:
		return ""
	case s.manual:
		return clockOf(s.at) + " on demand"
	case !s.backfill.IsZero():
		return clockOf(s.at) + " of the backfill"
	}
	return clockOf(s.at)
}

func decisionOf(p plan) decision {
	d := decision{
		Start: startOf(p.start), Blocked: startOf(p.blocked),
		DecidedUntil: clockOf(p.progress.decidedUntil), LastScheduled: clockOf(p.progress.lastScheduled),
		Queued: p.queuedCount, Missed: p.missed, Overflow: p.overflow,
		Next: clockOf(p.next), WakeAt: clockOf(p.wakeAt), ScheduleChanged: p.scheduleChanged, Stopped: p.stopped,
		Reached: clockOf(p.progress.backfill.reached), Finished: clockOf(p.progress.backfill.finished),
	}
	for _, r := range p.progress.streak.failed {
		d.Failed = append(d.Failed, clockOf(r.finishTime))
	}
	for _, scheduled := range p.progress.queued {
		d.Queue = append(d.Queue, clockOf(scheduled))
	}
	for to, runs := range map[*[]string][]run{&d.Replace: p.replace, &d.Prune: p.prune, &d.Release: p.release} {
		for _, r := range runs {
			*to = append(*to, clockOf(r.at))
		}
	}
	return d
}

// withQueued adds queued runs to an observation.
func withQueued(seen observation, times ...string) observation {
	for _, clock := range times {
		seen.progress.queued = append(seen.progress.queued, at(clock))
	}
	seen.recorded = seen.progress.clone()
	return seen
}

// decideTest is a row of the table of decide.
type decideTest struct {
	name    string
	cronTab *stablev1.CronTab
	seen    func(*stablev1.CronTab) observation
	now     string
	want    decision
}

func (test decideTest) run(t *testing.T) {
	seen := observationOf(test.cronTab, at("11:59:00"))
	if test.seen != nil {
		seen = test.seen(test.cronTab)
		seen.schedule, seen.invalid = newSchedule(test.cronTab)
	}
	seen.postponed = true // TestPostpone is about the others
	p := decide(test.cronTab, seen, at(test.now))
	if diff := cmp.Diff(test.want, decisionOf(p)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if got, want := p.progress.missed, seen.progress.missed+int64(p.missed); got != want {
		t.Errorf("missed is %d, want %d", got, want)
	}
}

// After an absence, what is due now starts before what is late.
func TestPostpone(t *testing.T) {
	isAt := func(clock string) func(*stablev1.CronTab) observation {
		return func(c *stablev1.CronTab) observation { return observationOf(c, at(clock)) }
	}
	for _, test := range []struct {
		name   string
		change mutation
		seen   func(*stablev1.CronTab) observation
		now    string
		want   bool
		wakeAt string
	}{
		{"on time", withMissedRuns(stablev1.LatestMissedRun, 10), isAt("11:59:00"), "12:00:10", false, "12:01:00"},
		{"late", withMissedRuns(stablev1.LatestMissedRun, 10), isAt("11:59:00"), "12:00:11", true, "12:00:21"},
		{"late, and the next run is soon", withMissedRuns(stablev1.LatestMissedRun, 10), isAt("11:59:00"), "12:00:55", true, "12:01:00"},
		{"several late", withMissedRuns(stablev1.AllMissedRuns, 10), isAt("11:50:00"), "12:00:11", true, "12:00:21"},
		{"late on demand", withRequest(at("11:50:00").Format(time.RFC3339)), isAt("12:00:00"), "12:00:20", false, "12:01:00"},
		{"of a backfill", withBackfill(), isAt("12:00:00"), "12:00:05", true, "12:00:15"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCronTab(test.change)
			seen := test.seen(c)
			seen.schedule, seen.invalid = newSchedule(c)
			p := decide(c, seen, at(test.now))
			if p.postponed != test.want || clockOf(p.wakeAt) != test.wakeAt {
				t.Errorf("postponed %v, wakes at %s", p.postponed, clockOf(p.wakeAt))
			}
			seen.postponed = true
			if p := decide(c, seen, at(test.now)); p.postponed || p.start == nil {
				t.Error("it never starts")
			}
		})
	}
}

func TestDecide(t *testing.T) {
	eleven59 := at("11:59:00")
	for _, test := range []decideTest{
		{
			name: "nothing is due, the wakeup is set to the next run", cronTab: newCronTab(), now: "11:59:30",
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "a run starts when it is due", cronTab: newCronTab(), now: "12:00:00",
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Latest starts the latest missed run", cronTab: newCronTab(), now: "12:05:10",
			want: decision{Start: "12:05:00", DecidedUntil: "12:05:00", LastScheduled: "11:59:00", Queue: []string{"12:05:00"}, Queued: 1, Missed: 5, Next: "12:06:00", WakeAt: "12:06:00"},
		},
		{
			name: "All starts all missed runs in order", cronTab: newCronTab(withMissedRuns(stablev1.AllMissedRuns, 10)), now: "12:02:10",
			want: decision{Start: "12:00:00", DecidedUntil: "12:02:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00", "12:01:00", "12:02:00"}, Queued: 3, Next: "12:03:00", WakeAt: "12:02:10"},
		},
		{
			name: "All starts at most maxMissedRuns", cronTab: newCronTab(withMissedRuns(stablev1.AllMissedRuns, 2)), now: "12:09:10",
			want: decision{Start: "12:08:00", DecidedUntil: "12:09:00", LastScheduled: "11:59:00", Queue: []string{"12:08:00", "12:09:00"}, Queued: 2, Missed: 8, Overflow: true, Next: "12:10:00", WakeAt: "12:09:10"},
		},
		{
			name: "Skip starts a run on time", cronTab: newCronTab(withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:09",
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Skip drops a late run", cronTab: newCronTab(withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:11",
			want: decision{DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Missed: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Skip drops runs from before this process was active", cronTab: newCronTab(withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:01",
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59)
				seen.activeSince = at("12:00:01")
				return seen
			},
			want: decision{DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Missed: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "a queued run is replaced by a later one", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent)), now: "12:01:00",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Blocked: "12:01:00", DecidedUntil: "12:01:00", LastScheduled: "12:00:00", Queue: []string{"12:01:00"}, Queued: 1, Missed: 1, Next: "12:02:00", WakeAt: "12:02:00"},
		},
		{
			name: "Forbid waits for the active run", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Forbid starts a run when the active one has finished", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent)), now: "12:00:20",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59, finishedWith(batchv1.JobComplete))), "12:00:00")
			},
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "12:00:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Forbid with Skip drops the run", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent), withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Missed: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Forbid with maxConcurrency", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent), withMaxConcurrency(2)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Allow has no limit", cronTab: newCronTab(), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, eleven59, jobOf(c, at("11:57:00")), jobOf(c, at("11:58:00")), jobOf(c, eleven59))
			},
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Allow with maxConcurrency", cronTab: newCronTab(withMaxConcurrency(1)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Replace deletes the active run first", cronTab: newCronTab(withPolicy(stablev1.ReplaceConcurrent)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Replace: []string{"11:59:00"}, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Replace waits until the Pods are gone", cronTab: newCronTab(withPolicy(stablev1.ReplaceConcurrent)), now: "12:00:05",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59, terminating)), "12:00:00")
			},
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "12:00:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Replace leaves finished runs alone", cronTab: newCronTab(withPolicy(stablev1.ReplaceConcurrent)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, eleven59, jobOf(c, eleven59, finishedWith(batchv1.JobComplete)))
			},
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Queue keeps every run", cronTab: newCronTab(withPolicy(stablev1.QueueConcurrent)), now: "12:01:00",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:01:00", LastScheduled: "12:00:00", Queue: []string{"12:00:00", "12:01:00"}, Queued: 2, Next: "12:02:00", WakeAt: "12:02:00"},
		},
		{
			name: "a run past its deadline is missed", cronTab: newCronTab(withDeadline(10), withPolicy(stablev1.ForbidConcurrent)), now: "12:00:11",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{DecidedUntil: "12:00:00", LastScheduled: "12:00:00", Missed: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "the wakeup is set to the deadline", cronTab: newCronTab(withDeadline(10), withPolicy(stablev1.ForbidConcurrent)), now: "12:00:09",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Blocked: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "12:00:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:00:11"},
		},
		{
			name: "a deadline of zero allows the second in which the run is due", cronTab: newCronTab(withDeadline(0)), now: "12:00:00",
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "a clock set back repeats no run", cronTab: newCronTab(), now: "11:50:00",
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "a changed schedule counts from now", cronTab: newCronTab(withSchedule("*/2 * * * *")), now: "12:30:10",
			seen: func(c *stablev1.CronTab) observation { return observationOf(newCronTab(), eleven59) },
			want: decision{DecidedUntil: "12:30:10", LastScheduled: "11:59:00", Next: "12:32:00", WakeAt: "12:32:00", ScheduleChanged: true},
		},
		{
			name: "a resumed schedule counts from now", cronTab: newCronTab(), now: "12:30:10",
			seen: func(c *stablev1.CronTab) observation { return observationOf(newCronTab(withSuspend), eleven59) },
			want: decision{DecidedUntil: "12:30:10", LastScheduled: "11:59:00", Next: "12:31:00", WakeAt: "12:31:00", ScheduleChanged: true},
		},
		{
			name: "a changed schedule drops queued runs", cronTab: newCronTab(withSchedule("*/2 * * * *")), now: "12:00:10",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(newCronTab(), at("12:00:00")), "12:00:00")
			},
			want: decision{DecidedUntil: "12:00:10", LastScheduled: "12:00:00", Missed: 1, Next: "12:02:00", WakeAt: "12:02:00", ScheduleChanged: true},
		},
		{
			name: "a changed schedule does not repeat a run after the clock was set back a little", cronTab: newCronTab(withSchedule("* * * * * *")), now: "11:58:58",
			seen: func(c *stablev1.CronTab) observation { return observationOf(newCronTab(), eleven59) },
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "11:59:01", WakeAt: "11:59:01", ScheduleChanged: true},
		},
		{
			name: "a new CronTab counts from its creation", now: "11:02:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { c.Generation = 1 }),
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, time.Time{})
				seen.progress = progress{}
				return seen
			},
			want: decision{Start: "11:02:00", DecidedUntil: "11:02:00", Queue: []string{"11:02:00"}, Queued: 1, Missed: 1, Next: "11:03:00", WakeAt: "11:03:00", ScheduleChanged: true},
		},
		{
			name: "a CronTab changed before the first reconcile counts from now", cronTab: newCronTab(), now: "11:02:30",
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, time.Time{})
				seen.progress = progress{}
				return seen
			},
			want: decision{DecidedUntil: "11:02:30", Next: "11:03:00", WakeAt: "11:03:00", ScheduleChanged: true},
		},
		{
			name: "suspended, nothing is due", cronTab: newCronTab(withSuspend), now: "12:30:00",
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00"},
		},
		{
			name: "on demand, while suspended", cronTab: newCronTab(withSuspend, withRequest("2026-03-04T12:29:31Z")), now: "12:30:00",
			want: decision{Start: "12:29:31 on demand", DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Queued: 1},
		},
		{
			name: "on demand, once", cronTab: newCronTab(withRequest("2026-03-04T13:30:30+01:00")), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59)
				seen.progress.lastManual = at("12:30:30")
				return seen
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "on demand, with a request restored from a backup", cronTab: newCronTab(withRequest("2026-03-04T10:58:59Z")), now: "11:59:30",
			seen: withoutStatus,
			want: decision{DecidedUntil: "11:59:30", Next: "12:00:00", WakeAt: "12:00:00", ScheduleChanged: true},
		},
		{
			name: "on demand, requested at creation by a client with a slow clock", cronTab: newCronTab(withRequest("2026-03-04T10:59:30Z")), now: "11:59:30",
			seen: withoutStatus,
			want: decision{Start: "10:59:30 on demand", DecidedUntil: "11:59:30", Queued: 1, Next: "12:00:00", WakeAt: "12:00:00", ScheduleChanged: true},
		},
		{
			name: "on demand, already started according to a Job", cronTab: newCronTab(withRequest("2026-03-04T11:59:20Z")), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, eleven59, jobOf(c, at("11:59:20"), onDemand))
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "on demand, blocked by the concurrency limit", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent), withRequest("2026-03-04T11:59:20Z")), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "11:59:20 on demand", DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Queued: 1, Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "on demand with a value that does not fit, beside a scheduled run", cronTab: newCronTab(withParameters, withRequest("2026-03-04T11:59:20Z"), withValue("region", "mars")), now: "12:00:00",
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "11:59:00", Queue: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", WakeAt: "12:01:00"},
		},
		{
			name: "Jobs over the history limits are deleted", cronTab: newCronTab(), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				var jobs []*batchv1.Job
				for _, clock := range []string{"11:50:00", "11:51:00", "11:52:00", "11:53:00", "11:54:00"} {
					jobs = append(jobs, jobOf(c, at(clock), finishedWith(batchv1.JobComplete)))
				}
				for _, clock := range []string{"11:55:00", "11:56:00"} {
					jobs = append(jobs, jobOf(c, at(clock), finishedWith(batchv1.JobFailed)))
				}
				return observationOf(c, eleven59, append(jobs, jobOf(c, at("11:57:00")))...)
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Prune: []string{"11:50:00", "11:51:00", "11:55:00"}, Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "a Job stays until its run is recorded", now: "11:59:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { *c.Spec.SuccessfulJobsHistoryLimit = 0 }),
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59, jobOf(c, at("11:58:00"), finishedWith(batchv1.JobComplete)), jobOf(c, eleven59, finishedWith(batchv1.JobComplete)))
				seen.recorded.decidedUntil = at("11:58:00")
				return seen
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Prune: []string{"11:58:00"}, Next: "12:00:00", WakeAt: "12:00:00"},
		},
		{
			name: "a Job from before this process was active stays during the handover", now: "11:59:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { *c.Spec.SuccessfulJobsHistoryLimit = 0 }),
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59, jobOf(c, at("11:58:00"), finishedWith(batchv1.JobComplete)), jobOf(c, eleven59, finishedWith(batchv1.JobComplete)))
				seen.activeSince = at("11:58:40")
				return seen
			},
			want: decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00", Prune: []string{"11:59:00"}, Next: "12:00:00", WakeAt: "11:59:40"},
		},
		{
			name: "the schedule has no future run", now: "12:00:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { t := metav1.NewTime(at("11:59:30")); c.Spec.NotAfter = &t }),
			want:    decision{DecidedUntil: "11:59:00", LastScheduled: "11:59:00"},
		},
		{
			name: "a million missed runs are counted", cronTab: newCronTab(withSchedule("* * * * * *"), func(c *stablev1.CronTab) { c.Generation = 1 }), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, at("12:00:00").Add(-1_000_000*time.Second))
			},
			want: decision{Start: "12:00:00", DecidedUntil: "12:00:00", LastScheduled: "2026-02-20 22:13:20", Queue: []string{"12:00:00"}, Queued: 1, Missed: 999_999, Next: "12:00:01", WakeAt: "12:00:01"},
		},
	} {
		t.Run(test.name, test.run)
	}
}

func TestIsDoubtful(t *testing.T) {
	began := clocks.Reading(noon, 0)
	for _, tt := range []struct {
		name              string
		verified, stalled time.Time
		now               time.Time
		due               time.Duration // after noon
		want              bool
	}{
		{name: "on time", verified: began, now: began.Add(time.Hour), due: time.Hour},
		{name: "late, recently verified", verified: began, now: began.Add(time.Minute), due: -time.Hour},
		{name: "late, not verified for long", verified: began, now: began.Add(time.Hour), due: time.Minute, want: true},
		{name: "late, not verified for long, clock set back", verified: began,
			now: clocks.Reading(noon.Add(-time.Hour), 2*time.Minute), due: -2 * time.Hour, want: true},
		{name: "the machine was suspended", verified: began, now: clocks.Reading(noon.Add(time.Hour), time.Second), due: time.Minute, want: true},
		{name: "stalled since verified", verified: began, stalled: began.Add(time.Second), now: began.Add(2 * time.Second), want: true},
		{name: "verified since the stall", verified: began.Add(2 * time.Second), stalled: began.Add(time.Second), now: began.Add(3 * time.Second)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan{now: tt.now, start: &pendingRun{due: noon.Add(tt.due)}}
			if got := p.isDoubtful(tt.verified, tt.stalled); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A status update that somebody may wait for is not deferred.
func TestIsRoutine(t *testing.T) {
	due := noon
	tests := []struct {
		name   string
		change func(*plan)
		want   bool
	}{
		{"a run on time", func(*plan) {}, true},
		{"nothing is started", func(p *plan) { p.start = nil }, false},
		{"a run on demand", func(p *plan) { p.start.manual = true }, false},
		{"a late run", func(p *plan) { p.now = due.Add(maxLateness + time.Second) }, false},
		{"cleanup is overdue", func(p *plan) { p.cleanupOverdue = true }, false},
		{"more runs are queued", func(p *plan) { p.queuedCount = 2 }, false},
		{"runs were missed", func(p *plan) { p.missed = 1 }, false},
		{"the schedule changed", func(p *plan) { p.scheduleChanged = true }, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := plan{now: due.Add(time.Millisecond), queuedCount: 1, start: &pendingRun{at: due, due: due}, progress: progress{queued: []time.Time{due}}}
			tc.change(&p)
			if got := p.isRoutine(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// Whatever the jitter, each run starts once, in order, and not before its time.
func TestJitterDropsNoRun(t *testing.T) {
	for _, jitter := range []time.Duration{time.Second, 59 * time.Second, time.Minute, 61 * time.Second, time.Hour, 24 * time.Hour} {
		for _, text := range []string{"* * * * *", "*/20 * * * * *", "0,1,30 * * * *"} {
			cronTab := newCronTab(withSchedule(text), func(c *stablev1.CronTab) { c.Spec.Jitter = &metav1.Duration{Duration: jitter} })
			seen := observationOf(cronTab, noon)
			nominal := seen.schedule
			for now := noon; now.Before(noon.Add(3 * time.Hour)); {
				p := decide(cronTab, seen, now)
				seen.progress = p.progress
				if p.start != nil {
					want, _ := nominal.Next(seen.progress.lastScheduled)
					if late := now.Sub(want); !p.start.at.Equal(want) || late < 0 || late > jitter {
						t.Fatalf("jitter %v, %q: started %v at %v, want %v", jitter, text, p.start.at, now, want)
					}
					seen.progress = p.progress.afterStart(p.start)
				}
				if p.missed > 0 || !p.wakeAt.After(now) {
					t.Fatalf("jitter %v, %q: at %v, %d missed, next wakeup at %v", jitter, text, now, p.missed, p.wakeAt)
				}
				now = p.wakeAt
			}
			if until := seen.progress.lastScheduled; until.Before(noon.Add(2 * time.Hour)) {
				t.Errorf("jitter %v, %q: the last run is that of %v", jitter, text, until)
			}
		}
	}
}
