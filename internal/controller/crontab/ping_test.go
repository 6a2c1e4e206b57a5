package crontab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func withPing(c *stablev1.CronTab) {
	c.Spec.Ping = &stablev1.Ping{URL: "https://hc.example/check", Events: []stablev1.PingEvent{stablev1.PingStart, stablev1.PingSuccess, stablev1.PingFailure}}
}

func TestPingURL(t *testing.T) {
	const base = "https://hc.example/4f1d"
	for _, test := range []struct {
		name, check string
		event       stablev1.PingEvent
		exitCode    *int32
		want        string
	}{
		{"start", base, stablev1.PingStart, nil, base + "/start?rid=run"},
		{"success", base, stablev1.PingSuccess, nil, base + "?rid=run"},
		{"failure", base, stablev1.PingFailure, nil, base + "/fail?rid=run"},
		{"an exit code", base, stablev1.PingFailure, ptr.To[int32](137), base + "/137?rid=run"},
		{"exit code 0, such as of a deadline", base, stablev1.PingFailure, ptr.To[int32](0), base + "/fail?rid=run"},
		{"an exit code of Windows", base, stablev1.PingFailure, ptr.To[int32](-1073741510), base + "/fail?rid=run"},
		{"a slash at the end", base + "/", stablev1.PingStart, nil, base + "/start?rid=run"},
		{"an escaped path", "https://hc.example/a%2Fb", stablev1.PingStart, nil, "https://hc.example/a%2Fb/start?rid=run"},
		{"a query and a fragment", base + "?create=1#top", stablev1.PingStart, nil, base + "/start?create=1&rid=run"},
		{"no path", "http://hc.example:8000", stablev1.PingStart, nil, "http://hc.example:8000/start?rid=run"},
		{"another scheme", "ftp://hc.example/4f1d", stablev1.PingStart, nil, ""},
		{"no scheme", "hc.example/4f1d", stablev1.PingStart, nil, ""},
		{"no host", "https:///4f1d", stablev1.PingStart, nil, ""},
		{"user info", "https://user@hc.example/4f1d", stablev1.PingStart, nil, ""},
		{"nothing", "", stablev1.PingStart, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			u, err := pingURL(test.check, &ping{run: "run", body: pingBody{Event: test.event, ExitCode: test.exitCode}})
			switch {
			case test.want == "" && !errors.Is(err, errPingURL):
				t.Errorf("got %v, %v", u, err)
			case test.want != "" && (err != nil || u.String() != test.want):
				t.Errorf("got %v, %v, want %s", u, err, test.want)
			}
		})
	}
}

// endsAt returns a change of a Job that ended at a time of day.
func endsAt(clock string, condition batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		finishedWith(condition)(job)
		job.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at(clock))
	}
}

func TestEndPings(t *testing.T) {
	const succeeds, fails = batchv1.JobComplete, batchv1.JobFailed
	job := func(clock string, changes ...func(*batchv1.Job)) *batchv1.Job {
		return jobOf(newCronTab(), at(clock), changes...)
	}
	isActive := func(clocks ...string) stablev1.CronTabStatus {
		status := stablev1.CronTabStatus{}
		for _, clock := range clocks {
			status.Active = append(status.Active, corev1.ObjectReference{UID: types.UID("job-" + clock)})
		}
		return status
	}
	recorded := func(status stablev1.CronTabStatus, clock string) stablev1.CronTabStatus {
		status.LastRun = &stablev1.FinishedRun{JobName: "some", FinishTime: metav1.NewTime(at(clock))}
		return status
	}
	code3 := func(clock string) *failureOf { return &failureOf{clock, 3} }
	for _, test := range []struct {
		name   string
		status stablev1.CronTabStatus
		jobs   []*batchv1.Job
		failed *failureOf
		want   []string
	}{
		{"it is active", isActive(), []*batchv1.Job{job("12:00:00")}, nil, nil},
		{"the first run succeeds", isActive("12:00:00"), []*batchv1.Job{job("12:00:00", endsAt("12:00:10", succeeds))}, nil, []string{"12:00:00 Success"}},
		{"a run fails", isActive("12:00:00"), []*batchv1.Job{job("12:00:00", endsAt("12:00:10", fails))}, code3("12:00:00"), []string{"12:00:00 Failure 3"}},
		{"its end is recorded", recorded(isActive(), "12:00:10"), []*batchv1.Job{job("12:00:00", endsAt("12:00:10", succeeds))}, nil, nil},
		{"the end of an earlier one is recorded", recorded(isActive("12:00:00"), "12:01:10"),
			[]*batchv1.Job{job("11:59:00", endsAt("12:00:05", fails)), job("12:00:00"), job("12:01:00", endsAt("12:01:10", succeeds))}, nil, nil},
		{"it started and ended since the last update", recorded(isActive(), "12:00:10"),
			[]*batchv1.Job{job("12:00:00", endsAt("12:00:10", succeeds)), job("12:01:00", endsAt("12:01:02", succeeds))}, nil, []string{"12:01:00 Success"}},
		{"a long run ends before the last one that is recorded", recorded(isActive("12:00:00"), "12:05:10"),
			[]*batchv1.Job{job("12:00:00", endsAt("12:05:09", fails))}, nil, []string{"12:00:00 Failure"}},
		{"it ends in the second of the last one that is recorded", recorded(isActive("12:01:00"), "12:01:10"),
			[]*batchv1.Job{job("12:00:00", endsAt("12:01:10", succeeds)), job("12:01:00", endsAt("12:01:10", succeeds))}, nil, []string{"12:01:00 Success"}},
		{"several end at once", isActive("12:00:00", "12:01:00", "12:02:00"),
			[]*batchv1.Job{job("12:00:00", endsAt("12:02:30", succeeds)), job("12:01:00", endsAt("12:02:10", fails)), job("12:02:00", endsAt("12:02:10", fails))},
			code3("12:02:00"), []string{"12:01:00 Failure", "12:02:00 Failure 3", "12:00:00 Success"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cronTab := newCronTab(withPing, func(c *stablev1.CronTab) { c.Status = test.status })
			runs := observationOf(cronTab, noon, test.jobs...).runs
			var f *failure
			if test.failed != nil {
				f = &failure{run: run{uid: types.UID("job-" + test.failed.clock)}, exitCode: &test.failed.code}
			}
			if diff := cmp.Diff(test.want, describe(endPings(cronTab, runs, f))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			cronTab.Spec.Ping.Events = []stablev1.PingEvent{stablev1.PingStart}
			if got := endPings(cronTab, runs, f); got != nil {
				t.Errorf("without the events of ends: %v", describe(got))
			}
			cronTab.Spec.Ping = nil
			if got := endPings(cronTab, runs, f); got != nil {
				t.Errorf("without spec.ping: %v", describe(got))
			}
		})
	}
}

type failureOf struct {
	clock string
	code  int32
}

// describe returns the scheduled times and the events of pings.
func describe(pings []*ping) []string {
	var all []string
	for _, p := range pings {
		text := p.body.ScheduledTime.Format(time.TimeOnly) + " " + string(p.body.Event)
		if p.body.ExitCode != nil {
			text += " " + string('0'+*p.body.ExitCode)
		}
		all = append(all, text)
	}
	return all
}

// pings returns the events that wait in all processes, in this order.
func (f *fixture) pings() []string {
	f.Helper()
	var all []string
	for _, p := range f.pingers {
		for _, one := range p.waiting[f.Object().UID] {
			all = append(all, string(one.body.Event)+" "+string(one.run))
		}
	}
	return all
}

// A run has a ping when its Job is created and when its end is recorded. A new process, and a CronTab that gets spec.ping later, repeats none.
func TestPingsOfARun(t *testing.T) {
	f := newFixture(t)
	f.create()
	job := f.jobs()[0]
	f.finishJob(&job, batchv1.JobComplete)
	f.reconcileUntilStable()
	f.update(withPing)
	f.reconcileUntilStable()
	if got := f.pings(); len(got) > 0 {
		t.Errorf("for the run before spec.ping: %v", got)
	}
	f.advanceToNextRun()
	f.reconcileUntilStable()
	job = f.jobs()[1]
	want := []string{"Start " + string(job.UID)}
	if diff := cmp.Diff(want, f.pings()); diff != "" {
		t.Errorf("after the start (-want +got):\n%s", diff)
	}
	f.Restart()
	f.reconcileUntilStable()
	f.Clock.Step(time.Second)
	f.finishJob(&job, batchv1.JobFailed)
	f.reconcileUntilStable()
	f.Restart()
	f.reconcileUntilStable()
	if diff := cmp.Diff(append(want, "Failure "+string(job.UID)), f.pings()); diff != "" {
		t.Errorf("after the end (-want +got):\n%s", diff)
	}
}

// TestStoriesOfPings tells that a run ends, and another starts. Whatever happens at a write, no event has two pings.
func TestStoriesOfPings(t *testing.T) {
	stories.Table[*fixture]{New: startFixture, Steps: 10,
		Always: func(f *fixture) {
			sent := map[string]int{}
			for _, one := range f.pings() {
				if sent[one]++; sent[one] > 1 {
					f.Errorf("two pings: %s", one)
				}
			}
		},
		Finish: func(f *fixture) {
			f.Restart()
			f.reconcileUntilStable()
		},
		Stories: []stories.Story[*fixture]{{
			Name: "a run ends",
			Before: func(f *fixture) {
				f.keepsJobs = true
				f.create(withPing)
			},
			Happen: func(f *fixture) {
				f.Clock.Step(time.Second)
				job := f.jobs()[0]
				f.finishJob(&job, batchv1.JobComplete)
			},
			End: func(f *fixture) {
				if last := f.Object().Status.LastRun; last == nil {
					f.Error("the end is not recorded")
				}
				if got := strings.Join(f.pings(), " "); strings.Count(got, "Start") < 2 {
					f.Errorf("got %s, want one for the next run as well", got)
				}
			},
		}},
	}.Run(t)
}
