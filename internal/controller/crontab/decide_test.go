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

// decision is what a plan says, as a test writes it.
type decision struct {
	Start, Blocked string
	Until, Last    string
	Waiting        []string
	Queued, Missed int
	Overflow       bool
	Replace, Prune []string
	Release        []string
	Next, Wake     string
	Restarted      bool
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
	}
	return clockOf(s.at)
}

func decisionOf(p plan) decision {
	d := decision{
		Start: startOf(p.start), Blocked: startOf(p.blocked),
		Until: clockOf(p.progress.decidedUntil), Last: clockOf(p.progress.lastScheduled),
		Queued: p.queuedCount, Missed: p.missed, Overflow: p.overflow,
		Next: clockOf(p.next), Wake: clockOf(p.wakeAt), Restarted: p.scheduleChanged,
	}
	for _, scheduled := range p.progress.queued {
		d.Waiting = append(d.Waiting, clockOf(scheduled))
	}
	for to, runs := range map[*[]string][]run{&d.Replace: p.replace, &d.Prune: p.prune, &d.Release: p.release} {
		for _, r := range runs {
			*to = append(*to, clockOf(r.at))
		}
	}
	return d
}

// waiting makes runs of an observation wait.
func withQueued(seen observation, times ...string) observation {
	for _, clock := range times {
		seen.progress.queued = append(seen.progress.queued, at(clock))
	}
	seen.recorded = seen.progress.clone()
	return seen
}

func TestDecide(t *testing.T) {
	eleven59 := at("11:59:00")
	for _, test := range []struct {
		name    string
		cronTab *stablev1.CronTab
		seen    func(*stablev1.CronTab) observation
		now     string
		want    decision
	}{
		{
			name: "nothing is due, the alarm is set for what comes", cronTab: newCronTab(), now: "11:59:30",
			want: decision{Until: "11:59:00", Last: "11:59:00", Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "at its time a run starts", cronTab: newCronTab(), now: "12:00:00",
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "of those that were missed the latest starts", cronTab: newCronTab(), now: "12:05:10",
			want: decision{Start: "12:05:00", Until: "12:05:00", Last: "11:59:00", Waiting: []string{"12:05:00"}, Queued: 1, Missed: 5, Next: "12:06:00", Wake: "12:06:00"},
		},
		{
			name: "all start, one by one", cronTab: newCronTab(withMissedRuns(stablev1.AllMissedRuns, 10)), now: "12:02:10",
			want: decision{Start: "12:00:00", Until: "12:02:00", Last: "11:59:00", Waiting: []string{"12:00:00", "12:01:00", "12:02:00"}, Queued: 3, Next: "12:03:00", Wake: "12:02:10"},
		},
		{
			name: "all are no more than the most", cronTab: newCronTab(withMissedRuns(stablev1.AllMissedRuns, 2)), now: "12:09:10",
			want: decision{Start: "12:08:00", Until: "12:09:00", Last: "11:59:00", Waiting: []string{"12:08:00", "12:09:00"}, Queued: 2, Missed: 8, Overflow: true, Next: "12:10:00", Wake: "12:09:10"},
		},
		{
			name: "with Skip one that is on time starts", cronTab: newCronTab(withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:09",
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "with Skip none that is late", cronTab: newCronTab(withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:11",
			want: decision{Until: "12:00:00", Last: "11:59:00", Missed: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "with Skip none of the time when nothing was running", cronTab: newCronTab(withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:01",
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59)
				seen.activeSince = at("12:00:01")
				return seen
			},
			want: decision{Until: "12:00:00", Last: "11:59:00", Missed: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "a run that waits gives way to a later one", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent)), now: "12:01:00",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Blocked: "12:01:00", Until: "12:01:00", Last: "12:00:00", Waiting: []string{"12:01:00"}, Queued: 1, Missed: 1, Next: "12:02:00", Wake: "12:02:00"},
		},
		{
			name: "Forbid waits for the active run", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "and starts when it has ended", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent)), now: "12:00:20",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59, finishedWith(batchv1.JobComplete))), "12:00:00")
			},
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "12:00:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "Forbid with Skip gives up", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent), withMissedRuns(stablev1.SkipMissedRuns, 10)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", Until: "12:00:00", Last: "11:59:00", Missed: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "Forbid allows more than one if it is told to", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent), withMaxConcurrency(2)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "Allow has no limit", cronTab: newCronTab(), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, eleven59, jobOf(c, at("11:57:00")), jobOf(c, at("11:58:00")), jobOf(c, eleven59))
			},
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "but maxConcurrency", cronTab: newCronTab(withMaxConcurrency(1)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "Replace deletes the active run first", cronTab: newCronTab(withPolicy(stablev1.ReplaceConcurrent)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Replace: []string{"11:59:00"}, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "and waits until its pods are gone", cronTab: newCronTab(withPolicy(stablev1.ReplaceConcurrent)), now: "12:00:05",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59, terminating)), "12:00:00")
			},
			want: decision{Blocked: "12:00:00", Until: "12:00:00", Last: "12:00:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "Replace leaves finished runs alone", cronTab: newCronTab(withPolicy(stablev1.ReplaceConcurrent)), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, eleven59, jobOf(c, eleven59, finishedWith(batchv1.JobComplete)))
			},
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "Queue keeps every run", cronTab: newCronTab(withPolicy(stablev1.QueueConcurrent)), now: "12:01:00",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Blocked: "12:00:00", Until: "12:01:00", Last: "12:00:00", Waiting: []string{"12:00:00", "12:01:00"}, Queued: 2, Next: "12:02:00", Wake: "12:02:00"},
		},
		{
			name: "a run is too late", cronTab: newCronTab(withDeadline(10), withPolicy(stablev1.ForbidConcurrent)), now: "12:00:11",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Until: "12:00:00", Last: "12:00:00", Missed: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "the alarm is set for when it will be", cronTab: newCronTab(withDeadline(10), withPolicy(stablev1.ForbidConcurrent)), now: "12:00:09",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(c, at("12:00:00"), jobOf(c, eleven59)), "12:00:00")
			},
			want: decision{Blocked: "12:00:00", Until: "12:00:00", Last: "12:00:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:00:11"},
		},
		{
			name: "a deadline of zero leaves the second itself", cronTab: newCronTab(withDeadline(0)), now: "12:00:00",
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "11:59:00", Waiting: []string{"12:00:00"}, Queued: 1, Next: "12:01:00", Wake: "12:01:00"},
		},
		{
			name: "a clock that went back repeats nothing", cronTab: newCronTab(), now: "11:50:00",
			want: decision{Until: "11:59:00", Last: "11:59:00", Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "another schedule counts from now", cronTab: newCronTab(withSchedule("*/2 * * * *")), now: "12:30:10",
			seen: func(c *stablev1.CronTab) observation { return observationOf(newCronTab(), eleven59) },
			want: decision{Until: "12:30:10", Last: "11:59:00", Next: "12:32:00", Wake: "12:32:00", Restarted: true},
		},
		{
			name: "so does the end of a suspension", cronTab: newCronTab(), now: "12:30:10",
			seen: func(c *stablev1.CronTab) observation { return observationOf(newCronTab(withSuspend), eleven59) },
			want: decision{Until: "12:30:10", Last: "11:59:00", Next: "12:31:00", Wake: "12:31:00", Restarted: true},
		},
		{
			name: "what waits is not run with another schedule", cronTab: newCronTab(withSchedule("*/2 * * * *")), now: "12:00:10",
			seen: func(c *stablev1.CronTab) observation {
				return withQueued(observationOf(newCronTab(), at("12:00:00")), "12:00:00")
			},
			want: decision{Until: "12:00:10", Last: "12:00:00", Missed: 1, Next: "12:02:00", Wake: "12:02:00", Restarted: true},
		},
		{
			name: "a new schedule does not repeat a run after the clock went back a little", cronTab: newCronTab(withSchedule("* * * * * *")), now: "11:58:58",
			seen: func(c *stablev1.CronTab) observation { return observationOf(newCronTab(), eleven59) },
			want: decision{Until: "11:59:00", Last: "11:59:00", Next: "11:59:01", Wake: "11:59:01", Restarted: true},
		},
		{
			name: "a new CronTab counts from its creation", now: "11:02:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { c.Generation = 1 }),
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, time.Time{})
				seen.progress = progress{}
				return seen
			},
			want: decision{Start: "11:02:00", Until: "11:02:00", Waiting: []string{"11:02:00"}, Queued: 1, Missed: 1, Next: "11:03:00", Wake: "11:03:00", Restarted: true},
		},
		{
			name: "one that was changed before anybody looked counts from now", cronTab: newCronTab(), now: "11:02:30",
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, time.Time{})
				seen.progress = progress{}
				return seen
			},
			want: decision{Until: "11:02:30", Next: "11:03:00", Wake: "11:03:00", Restarted: true},
		},
		{
			name: "suspended, nothing is due", cronTab: newCronTab(withSuspend), now: "12:30:00",
			want: decision{Until: "11:59:00", Last: "11:59:00"},
		},
		{
			name: "on demand, although it is suspended", cronTab: newCronTab(withSuspend, withRequest("2026-03-04T12:29:31Z")), now: "12:30:00",
			want: decision{Start: "12:29:31 on demand", Until: "11:59:00", Last: "11:59:00", Queued: 1},
		},
		{
			name: "on demand, once", cronTab: newCronTab(withRequest("2026-03-04T13:30:30+01:00")), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59)
				seen.progress.lastManual = at("12:30:30")
				return seen
			},
			want: decision{Until: "11:59:00", Last: "11:59:00", Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "on demand, of an earlier CronTab that comes back from a backup", cronTab: newCronTab(withRequest("2026-03-04T10:58:59Z")), now: "11:59:30",
			seen: withoutStatus,
			want: decision{Until: "11:59:30", Next: "12:00:00", Wake: "12:00:00", Restarted: true},
		},
		{
			name: "on demand, asked for with the CronTab by somebody whose clock is behind", cronTab: newCronTab(withRequest("2026-03-04T10:59:30Z")), now: "11:59:30",
			seen: withoutStatus,
			want: decision{Start: "10:59:30 on demand", Until: "11:59:30", Queued: 1, Next: "12:00:00", Wake: "12:00:00", Restarted: true},
		},
		{
			name: "on demand, which a Job proves", cronTab: newCronTab(withRequest("2026-03-04T11:59:20Z")), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, eleven59, jobOf(c, at("11:59:20"), onDemand))
			},
			want: decision{Until: "11:59:00", Last: "11:59:00", Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "on demand, when there is room", cronTab: newCronTab(withPolicy(stablev1.ForbidConcurrent), withRequest("2026-03-04T11:59:20Z")), now: "11:59:30",
			seen: func(c *stablev1.CronTab) observation { return observationOf(c, eleven59, jobOf(c, eleven59)) },
			want: decision{Blocked: "11:59:20 on demand", Until: "11:59:00", Last: "11:59:00", Queued: 1, Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "a request that is no time is none", cronTab: newCronTab(withRequest("now")), now: "11:59:30",
			want: decision{Until: "11:59:00", Last: "11:59:00", Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "old Jobs go", cronTab: newCronTab(), now: "11:59:30",
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
			want: decision{Until: "11:59:00", Last: "11:59:00", Prune: []string{"11:50:00", "11:51:00", "11:55:00"}, Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "a Job stays that is the only proof of its run", now: "11:59:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { *c.Spec.SuccessfulJobsHistoryLimit = 0 }),
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59, jobOf(c, at("11:58:00"), finishedWith(batchv1.JobComplete)), jobOf(c, eleven59, finishedWith(batchv1.JobComplete)))
				seen.recorded.decidedUntil = at("11:58:00")
				return seen
			},
			want: decision{Until: "11:59:00", Last: "11:59:00", Prune: []string{"11:58:00"}, Next: "12:00:00", Wake: "12:00:00"},
		},
		{
			name: "a Job of a time before this process took over keeps its name for a while", now: "11:59:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { *c.Spec.SuccessfulJobsHistoryLimit = 0 }),
			seen: func(c *stablev1.CronTab) observation {
				seen := observationOf(c, eleven59, jobOf(c, at("11:58:00"), finishedWith(batchv1.JobComplete)), jobOf(c, eleven59, finishedWith(batchv1.JobComplete)))
				seen.activeSince = at("11:58:40")
				return seen
			},
			want: decision{Until: "11:59:00", Last: "11:59:00", Prune: []string{"11:59:00"}, Next: "12:00:00", Wake: "11:59:40"},
		},
		{
			name: "no time is left", now: "12:00:30",
			cronTab: newCronTab(func(c *stablev1.CronTab) { t := metav1.NewTime(at("11:59:30")); c.Spec.NotAfter = &t }),
			want:    decision{Until: "11:59:00", Last: "11:59:00"},
		},
		{
			name: "a million missed runs are counted", cronTab: newCronTab(withSchedule("* * * * * *"), func(c *stablev1.CronTab) { c.Generation = 1 }), now: "12:00:00",
			seen: func(c *stablev1.CronTab) observation {
				return observationOf(c, at("12:00:00").Add(-1_000_000*time.Second))
			},
			want: decision{Start: "12:00:00", Until: "12:00:00", Last: "2026-02-20 22:13:20", Waiting: []string{"12:00:00"}, Queued: 1, Missed: 999_999, Next: "12:00:01", Wake: "12:00:01"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := observationOf(test.cronTab, eleven59)
			if test.seen != nil {
				seen = test.seen(test.cronTab)
				seen.schedule, seen.invalid = newSchedule(test.cronTab)
			}
			p := decide(test.cronTab, seen, at(test.now))
			if diff := cmp.Diff(test.want, decisionOf(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if got, want := p.progress.missed, seen.progress.missed+int64(p.missed); got != want {
				t.Errorf("%d runs are counted as missed, not %d", got, want)
			}
		})
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
		{name: "late, and confirmed a moment ago", verified: began, now: began.Add(time.Minute), due: -time.Hour},
		{name: "late, and long not confirmed", verified: began, now: began.Add(time.Hour), due: time.Minute, want: true},
		{name: "late, long not confirmed, and the clock was set back", verified: began,
			now: clocks.Reading(noon.Add(-time.Hour), 2*time.Minute), due: -2 * time.Hour, want: true},
		{name: "the machine was suspended", verified: began, now: clocks.Reading(noon.Add(time.Hour), time.Second), due: time.Minute, want: true},
		{name: "the alarm has noticed", verified: began, stalled: began.Add(time.Second), now: began.Add(2 * time.Second), want: true},
		{name: "confirmed since the alarm noticed", verified: began.Add(2 * time.Second), stalled: began.Add(time.Second), now: began.Add(3 * time.Second)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan{now: tt.now, start: &pendingRun{due: noon.Add(tt.due)}}
			if got := p.needsLiveRead(tt.verified, tt.stalled); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Whatever somebody waits for, or has to be told of, is not left to a later look.
func TestIsRoutine(t *testing.T) {
	due := noon
	tests := []struct {
		name   string
		change func(*plan)
		want   bool
	}{
		{"a run at its time", func(*plan) {}, true},
		{"nothing is started", func(p *plan) { p.start = nil }, false},
		{"somebody asked for it", func(p *plan) { p.start.manual = true }, false},
		{"it is late", func(p *plan) { p.now = due.Add(maxLateness + time.Second) }, false},
		{"all else has waited for long", func(p *plan) { p.cleanupOverdue = true }, false},
		{"others wait as well", func(p *plan) { p.queuedCount = 2 }, false},
		{"others are kept waiting", func(p *plan) { p.progress.queued = []time.Time{due, due.Add(time.Second)} }, false},
		{"runs were missed", func(p *plan) { p.missed = 1 }, false},
		{"there were too many", func(p *plan) { p.overflow = true }, false},
		{"one is blocked", func(p *plan) { p.blocked = &pendingRun{due: due} }, false},
		{"the timetable is another one", func(p *plan) { p.scheduleChanged = true }, false},
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
