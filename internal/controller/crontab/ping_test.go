package crontab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/controller/crontab/ping"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func withPing(c *stablev1.CronTab) {
	c.Spec.Ping = &stablev1.Ping{URL: "https://hc.example/check", Events: []stablev1.PingEvent{stablev1.PingStart, stablev1.PingSuccess, stablev1.PingFailure}}
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
func describe(pings []*ping.Ping) []string {
	var all []string
	for _, p := range pings {
		text := p.Body.ScheduledTime.Format(time.TimeOnly) + " " + string(p.Body.Event)
		if p.Body.ExitCode != nil {
			text += " " + string('0'+*p.Body.ExitCode)
		}
		all = append(all, text)
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
	if got := f.pinged; len(got) > 0 {
		t.Errorf("for the run before spec.ping: %v", got)
	}
	f.advanceToNextRun()
	f.reconcileUntilStable()
	job = f.jobs()[1]
	want := []string{"Start " + string(job.UID)}
	if diff := cmp.Diff(want, f.pinged); diff != "" {
		t.Errorf("after the start (-want +got):\n%s", diff)
	}
	f.Restart()
	f.reconcileUntilStable()
	f.Clock.Step(time.Second)
	f.finishJob(&job, batchv1.JobFailed)
	f.reconcileUntilStable()
	f.Restart()
	f.reconcileUntilStable()
	if diff := cmp.Diff(append(want, "Failure "+string(job.UID)), f.pinged); diff != "" {
		t.Errorf("after the end (-want +got):\n%s", diff)
	}
}

// TestStoriesOfPings tells that a run ends, and another starts. Whatever happens at a write, no event has two pings.
func TestStoriesOfPings(t *testing.T) {
	stories.Table[*fixture]{New: startFixture, Steps: 10,
		Always: func(f *fixture) {
			sent := map[string]int{}
			for _, one := range f.pinged {
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
				if got := strings.Join(f.pinged, " "); strings.Count(got, "Start") < 2 {
					f.Errorf("got %s, want one for the next run as well", got)
				}
			},
		}},
	}.Run(t)
}
