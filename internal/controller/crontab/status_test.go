package crontab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestConditions(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "tick-1", errors.New("exceeded quota"))
	for _, test := range []struct {
		name    string
		cronTab *stablev1.CronTab
		now     string
		err     error
		// ready and valid are status, reason, and message.
		ready, valid [3]string
	}{
		{
			name: "scheduled", cronTab: newCronTab(), now: "11:59:30",
			ready: [3]string{"True", "Scheduled", "The next run is scheduled"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "suspended", cronTab: newCronTab(withSuspend), now: "11:59:30",
			ready: [3]string{"True", "Suspended", "spec.suspend is true. Only runs on demand start"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "on demand only", cronTab: newCronTab(withSchedule("")), now: "11:59:30",
			ready: [3]string{"True", "NoSchedule", "No schedule is set. To start a run on demand, set spec.runRequestedAt to the current time"},
			valid: [3]string{"True", "NoSchedule", "No schedule is set"},
		},
		{
			name: "neither schedule nor template", now: "11:59:30",
			cronTab: newCronTab(withSchedule(""), func(c *stablev1.CronTab) { c.Spec.JobTemplate = nil }),
			ready:   [3]string{"False", "NoSchedule", "Neither a schedule nor a jobTemplate is set, so nothing can run. Set spec.schedule and spec.jobTemplate"},
			valid:   [3]string{"True", "NoSchedule", "No schedule is set"},
		},
		{
			name: "invalid schedule", cronTab: newCronTab(withSchedule("30-10 * * * *")), now: "11:59:30",
			ready: [3]string{"False", "InvalidSchedule", `spec.schedule: "30-10 * * * *": minute "30-10": the range runs backwards; write the smaller value first, or two ranges: 30-59,0-10`},
			valid: [3]string{"False", "InvalidSchedule", `spec.schedule: "30-10 * * * *": minute "30-10": the range runs backwards; write the smaller value first, or two ranges: 30-59,0-10`},
		},
		{
			name: "unknown time zone", cronTab: newCronTab(func(c *stablev1.CronTab) { c.Spec.TimeZone = "Mars/Base" }), now: "11:59:30",
			ready: [3]string{"False", "UnknownTimeZone", `spec.timeZone: unknown time zone "Mars/Base"; use an IANA name such as Europe/Berlin`},
			valid: [3]string{"False", "UnknownTimeZone", `spec.timeZone: unknown time zone "Mars/Base"; use an IANA name such as Europe/Berlin`},
		},
		{
			name: "no future run", cronTab: newCronTab(withSchedule("0 0 31 2 *")), now: "11:59:30",
			ready: [3]string{"False", "NeverRuns", "The schedule has no future run. Check spec.schedule, spec.notAfter and spec.excludeDates"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "the last run is over", cronTab: newCronTab(func(c *stablev1.CronTab) { c.Spec.NotAfter = ptr.To(metav1.NewTime(noon.Add(-time.Hour))) }), now: "11:59:30",
			ready: [3]string{"True", "Ended", "The schedule has no further run"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "clock set back", cronTab: newCronTab(), now: "11:50:00",
			ready: [3]string{"False", "ClockBehind", "The clock of the manager was set back, and the last scheduled run is in the future. To start over, suspend and resume the CronTab"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "too many missed runs", cronTab: newCronTab(withMissedRuns(stablev1.AllMissedRuns, 2)), now: "12:30:00",
			ready: [3]string{"True", "TooManyMissedRuns", "More runs were due than the limit allows. The excess runs were dropped; the others are being started"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "Job name taken", cronTab: newCronTab(), now: "12:00:00", err: kube.ErrNotOwned,
			ready: [3]string{"False", "JobNameTaken", `Job "tick-1772625600" already exists but is not the Job of this run. The run starts when that Job is gone; delete it if it is not needed`},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "Job rejected", cronTab: newCronTab(), now: "12:00:00", err: quota,
			ready: [3]string{"False", "JobRejected", `The API server rejected Job "tick-1772625600": jobs.batch "tick-1" is forbidden: exceeded quota. Fix spec.jobTemplate, or the policy or quota that rejected it; the controller retries`},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "a request with an unknown value, beside a scheduled run", cronTab: newCronTab(withParameters, withRequest("2026-03-04T11:59:20Z"), withValue("region", "mars")), now: "12:00:00",
			ready: [3]string{"False", "InvalidParameters", `The run requested at 2026-03-04T11:59:20Z does not start: the parameter "region" cannot be "mars", only "us", "eu". Correct spec.runParameters, or remove spec.runRequestedAt`},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "a backfill of too many times", cronTab: newCronTab(withBackfill(func(b *stablev1.Backfill) { b.From = metav1.NewTime(at("11:00:00").AddDate(-1, 0, 0)) })), now: "11:59:30",
			ready: [3]string{"False", "InvalidBackfill", "spec.backfill: the range has 525653 scheduled times, more than 10000: backfill a part of it at a time"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "a container that sets the variable of a parameter", cronTab: newCronTab(withParameters), now: "12:00:00", err: crontab.ParameterError("it sets region"),
			ready: [3]string{"False", "InvalidParameters", "No run starts: it sets region"},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
		{
			name: "API server unavailable", cronTab: newCronTab(), now: "12:00:00", err: errors.New("connection refused"),
			ready: [3]string{"False", "JobWriteFailed", `Failed to create Job "tick-1772625600", retrying: connection refused`},
			valid: [3]string{"True", "Valid", "The schedule is valid"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := observationOf(test.cronTab, at("11:59:00"))
			p := decide(test.cronTab, seen, at(test.now))
			status := summarize(test.cronTab, seen, p, actResult{}, test.err)
			for condition, want := range map[string][3]string{stablev1.ConditionReady: test.ready, stablev1.ConditionScheduleValid: test.valid} {
				got := meta.FindStatusCondition(status.Conditions, condition)
				if diff := cmp.Diff(want, [3]string{string(got.Status), got.Reason, got.Message}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", condition, diff)
				}
			}
		})
	}
}

func TestStatusAfterARun(t *testing.T) {
	cronTab := newCronTab()
	old := jobOf(cronTab, at("11:57:00"), finishedWith(batchv1.JobComplete))
	bad := jobOf(cronTab, at("11:58:00"), finishedWith(batchv1.JobFailed))
	seen := observationOf(cronTab, at("11:59:00"), old, bad, jobOf(cronTab, at("11:59:00")))
	p := decide(cronTab, seen, noon)
	started := run{name: p.start.name, uid: "job-12:00:00", resourceVersion: "7", at: noon, phase: active}
	status := summarize(cronTab, seen, p, actResult{started: &started}, nil)
	var names []string
	for _, ref := range status.Active {
		names = append(names, ref.Name)
	}
	if diff := cmp.Diff([]string{"tick-1772625540", "tick-1772625600"}, names); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
	for what, times := range map[string][2]time.Time{
		"last":       {noon, fromMetaTime(status.LastScheduleTime)},
		"next":       {at("12:01:00"), fromMetaTime(status.NextScheduleTime)},
		"successful": {at("11:57:10"), fromMetaTime(status.LastSuccessfulTime)},
		"failure":    {at("11:58:10"), status.LastRun.FinishTime.Time},
		"until":      {noon, fromMetaTime(status.ScheduledUntil)},
	} {
		if !times[0].Equal(times[1]) {
			t.Errorf("%s is %v, want %v", what, times[1], times[0])
		}
	}
	if len(status.QueuedTimes) != 0 || len(status.Active) != 2 {
		t.Errorf("the status is %s", asJSON(status))
	}
	// Writing and reading the status preserves progress.
	if want, got := p.progress.afterStart(p.start), progressFromStatus(&status); !got.equal(want) {
		t.Errorf("progress is %v, want %v", got, want)
	}
}

func TestLastRun(t *testing.T) {
	cronTab := newCronTab()
	good := runOf(jobOf(cronTab, at("11:57:00"), finishedWith(batchv1.JobComplete)))
	bad := runOf(jobOf(cronTab, at("11:58:00"), finishedWith(batchv1.JobFailed)))
	running := runOf(jobOf(cronTab, at("11:59:00")))
	code := &failure{run: bad, exitCode: ptr.To[int32](3)}
	recorded := &stablev1.FinishedRun{JobName: bad.name, Result: stablev1.RunFailed, FinishTime: *toMetaTime(bad.finishTime), ExitCode: ptr.To[int32](3)}
	for _, test := range []struct {
		name  string
		known *stablev1.FinishedRun
		runs  []run
		f     *failure
		want  *stablev1.FinishedRun
	}{
		{"none has finished", nil, []run{running}, nil, nil},
		{"success", nil, []run{good, running}, nil, &stablev1.FinishedRun{JobName: good.name, Result: stablev1.RunSucceeded, FinishTime: *toMetaTime(good.finishTime)}},
		{"failure", nil, []run{good, bad, running}, code, recorded},
		{"its Pods are gone", nil, []run{bad}, nil, &stablev1.FinishedRun{JobName: bad.name, Result: stablev1.RunFailed, FinishTime: *toMetaTime(bad.finishTime)}},
		{"recorded: the exit code stays", recorded, []run{good, bad}, nil, recorded},
		{"its Job is gone", recorded, []run{good}, nil, recorded},
		{"a Job without the time of its end", nil, []run{{name: "x", phase: failed}}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lastRun(test.known, test.runs, test.f)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailureMessage(t *testing.T) {
	const logs = ". To see its logs, run: kubectl logs --namespace ns job/a-1"
	for want, got := range map[string]string{
		`Job "a-1" failed: DeadlineExceeded, exit code 137`: failureMessage("ns", "a-1", "DeadlineExceeded", ptr.To[int32](137)),
		`Job "a-1" failed: exit code 1`:                     failureMessage("ns", "a-1", "", ptr.To[int32](1)),
		`Job "a-1" failed: BackoffLimitExceeded`:            failureMessage("ns", "a-1", "BackoffLimitExceeded", nil),
		`Job "a-1" failed`:                                  failureMessage("ns", "a-1", "", nil),
	} {
		if got != want+logs {
			t.Errorf("got %q, want %q", got, want+logs)
		}
	}
}

func TestStuckCause(t *testing.T) {
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, {ObjectMeta: metav1.ObjectMeta{Name: "q"}, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"}}}}}
	if got := stuckCause(pods); got != `Pod "q" is not scheduled: 0/1 nodes` {
		t.Errorf("got %q", got)
	}
	if got := stuckCause(nil); got != "It has no Pod; kubectl describe job has the reason" {
		t.Errorf("without a Pod: %q", got)
	}
}

func TestDeletionCause(t *testing.T) {
	pod := func(deleted string, finalizers ...string) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: finalizers}, Spec: corev1.PodSpec{NodeName: "n"}}
		if deleted != "" {
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(at(deleted)))
		}
		return pod
	}
	for _, test := range []struct {
		name       string
		finalizers []string
		pods       []corev1.Pod
		want       string
	}{
		{"a finalizer", []string{metav1.FinalizerDeleteDependents, "example.com/hold"}, []corev1.Pod{pod("11:59:00")}, `The finalizer "example.com/hold" holds it; remove that if nothing else will`},
		{"a finalizer of its Pod", []string{metav1.FinalizerDeleteDependents}, []corev1.Pod{pod("11:59:00", batchv1.JobTrackingFinalizer, "example.com/pod")},
			`The finalizer "example.com/pod" holds its Pod "p"; remove that if nothing else will`},
		{"a node that does not answer", nil, []corev1.Pod{pod("12:00:00"), pod("11:59:00", batchv1.JobTrackingFinalizer)}, `Its Pod "p" does not end; check the node "n"`},
		{"its Pod has time to end", nil, []corev1.Pod{pod("12:10:00")}, ""},
		{"its Pod is not deleted yet", nil, []corev1.Pod{pod("")}, ""},
		{"nothing", []string{metav1.FinalizerDeleteDependents}, nil, "It has no Pod, and the garbage collector of Kubernetes has not removed it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Finalizers: test.finalizers}}
			if got := deletionCause(job, test.pods, noon); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNextStuckCheck(t *testing.T) {
	r := &run{phase: active, startTime: noon}
	for after, want := range map[time.Duration]time.Duration{
		0: time.Minute, 59 * time.Second: time.Minute, time.Minute: 2 * time.Minute, 2*time.Minute + 1: 4 * time.Minute, time.Hour: 64 * time.Minute,
	} {
		if got := nextStuckCheck(r, time.Minute, noon.Add(after)).Sub(noon); got != want {
			t.Errorf("after %v the next is at %v, want %v", after, got, want)
		}
	}
}

func TestMetricsOfDeletedCronTab(t *testing.T) {
	cronTab := newCronTab(withSuspend)
	cronTab.Status = stablev1.CronTabStatus{
		Active: make([]corev1.ObjectReference, 2), QueuedTimes: make([]metav1.Time, 3), MissedRuns: 4,
		LastScheduleTime: ptr.To(metav1.NewTime(noon)),
		Conditions:       []metav1.Condition{{Type: stablev1.ConditionReady, Status: metav1.ConditionTrue}},
	}
	reader := fake.NewClientBuilder().WithScheme(harness.Scheme(t, stablev1.AddToScheme)).WithObjects(cronTab).Build()
	c := &collector{sources: map[client.Reader]struct{}{}}
	c.add(reader)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	gather := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				var labels []string
				for _, label := range metric.Label {
					labels = append(labels, label.GetValue())
				}
				values[family.GetName()+" "+strings.Join(labels, "/")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
		return values
	}
	want := map[string]float64{
		"crontab_status_active tick/market":             2,
		"crontab_status_queued tick/market":             3,
		"crontab_status_missed_runs_total tick/market":  4,
		"crontab_status_last_schedule_time tick/market": float64(noon.Unix()),
		"crontab_spec_suspend tick/market":              1,
		"crontab_spec_jitter_seconds tick/market":       0,
		"crontab_status_schedule_valid tick/market":     0,
		"crontab_status_stopped tick/market":            0,
		"crontab_status_ready tick/market":              1,
	}
	if diff := cmp.Diff(want, gather()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if err := reader.Delete(t.Context(), cronTab); err != nil {
		t.Fatal(err)
	}
	if left := gather(); len(left) > 0 {
		t.Errorf("metrics of a deleted CronTab: %v", left)
	}
}
