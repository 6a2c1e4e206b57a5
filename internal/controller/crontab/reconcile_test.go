package crontab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestARunCostsTwoWrites(t *testing.T) {
	w := newWorld(t)
	w.create()
	first, _ := w.startOfMinute()
	for range 5 {
		w.tick()
		w.settle()
	}
	want := []harness.Request{{Verb: "create"}, {Verb: "update", Subresource: "status"}}
	if diff := cmp.Diff(append(append(append(append(want, want...), want...), want...), want...), w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	m := time.Minute
	if diff := cmp.Diff([]time.Duration{0, m, 2 * m, 3 * m, 4 * m, 5 * m}, w.times(first)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	status := w.cronTab().Status
	if len(status.Active) != 6 || status.ActiveCount != 6 || !status.LastScheduleTime.Time.Equal(first.Add(5*m)) || !status.NextScheduleTime.Time.Equal(first.Add(6*m)) {
		t.Errorf("the status is %s", asJSON(status))
	}
	w.expectReady("True", stablev1.ReasonScheduled)
	if events := w.events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
}

func TestAJobIsThatOfACronJob(t *testing.T) {
	w := newWorld(t)
	zone := "Asia/Kathmandu"
	w.create(func(c *stablev1.CronTab) {
		c.Spec.TimeZone = &zone
		c.Spec.JobTemplate = &stablev1.JobTemplate{Spec: &batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: c.Spec.JobTemplate.PodSpec}}}
		c.Spec.JobTemplate.Labels = map[string]string{"app": "tick"}
		c.Spec.JobTemplate.Annotations = map[string]string{"note": "x"}
		c.Spec.JobTemplate.Spec.Template.Annotations = map[string]string{"note": "y", batchv1.CronJobScheduledTimestampAnnotation: "copied from a Job"}
	})
	nominal, _ := w.startOfMinute()
	job := w.jobs()[0]
	if want := jobName(w.cronTab(), nominal); job.Name != want {
		t.Errorf("the name is %s, not %s", job.Name, want)
	}
	kathmandu := must(time.LoadLocation(zone))
	want := map[string]string{"note": "x", batchv1.CronJobScheduledTimestampAnnotation: nominal.In(kathmandu).Format(time.RFC3339)}
	if diff := cmp.Diff(want, job.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	want["note"] = "y"
	if diff := cmp.Diff(want, job.Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations of the pods (-want +got):\n%s", diff)
	}
	if job.Labels["app"] != "tick" || !metav1.IsControlledBy(&job, w.cronTab()) {
		t.Errorf("the Job is %s", asJSON(job.ObjectMeta))
	}
}

func TestEndsOfJobsAreSeen(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.tick()
	jobs := w.jobs()
	w.end(&jobs[0], batchv1.JobComplete)
	w.end(&jobs[1], batchv1.JobFailed)
	w.settle()
	status := w.cronTab().Status
	if len(status.Active) != 0 || status.LastSuccessfulTime == nil || status.LastFailureTime == nil {
		t.Errorf("the status is %s", asJSON(status))
	}
	if diff := cmp.Diff([]string{"Warning JobFailed A Job failed; kubectl get jobs shows which"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestHistoryIsLimited(t *testing.T) {
	w := newWorld(t)
	w.create()
	for range 5 {
		w.tick()
		w.settle()
	}
	for _, job := range w.jobs() {
		w.end(&job, batchv1.JobComplete)
	}
	before := w.times(time.Time{})
	w.settle()
	if diff := cmp.Diff(before[3:], w.times(time.Time{})); diff != "" {
		t.Errorf("runs that are kept (-want +got):\n%s", diff)
	}
	w.tick()
	w.settle()
	if got := len(w.jobs()); got != 4 {
		t.Errorf("there are %d Jobs, not the three of the history and a new one", got)
	}
}

// To delete a long history takes a while, in which runs do not wait.
func TestALongHistoryIsDeletedLittleByLittle(t *testing.T) {
	w := newWorld(t)
	w.create(missed(stablev1.AllMissedRuns, 100))
	w.clock.Step(25 * time.Minute)
	w.settle()
	for _, job := range w.jobs() {
		w.end(&job, batchv1.JobComplete)
	}
	w.tick() // All else waits as long as there are runs, at first.
	w.clock.SetTime(w.alarm.at(client.ObjectKeyFromObject(w.cronTab())))
	before := len(w.jobs())
	result, err := w.reconcile()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(w.jobs()); got != before+1-tidyAtATime || result.RequeueAfter != untidyPause {
		t.Errorf("%d Jobs have become %d in the next run, and it looks again after %v", before, got, result.RequeueAfter)
	}
	w.settle()
	if got := len(w.jobs()); got > 5 {
		t.Errorf("there are %d Jobs", got)
	}
}

func TestOnlyARunThatIsVeryLateIsAnEvent(t *testing.T) {
	w := newWorld(t)
	w.create(schedule("0 * * * *"))
	for _, tt := range []struct {
		late time.Duration
		want int
	}{{0, 0}, {50 * time.Second, 0}, {70 * time.Second, 1}} {
		due := w.alarm.at(client.ObjectKey{Namespace: w.namespace, Name: "tick"})
		w.clock.SetTime(due.Add(tt.late))
		w.settle()
		var created int
		for _, event := range w.events() {
			if strings.HasPrefix(event, "Normal SuccessfulCreate Created Job") {
				created++
			}
		}
		if created != tt.want {
			t.Errorf("%s late: %d events, not %d", tt.late, created, tt.want)
		}
	}
}

// Where a run is always due, nothing but runs would ever be seen to.
func TestRunsWithoutEndDoNotKeepAllElseWaiting(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.change(schedule("* * * * * *"))
	if _, err := w.reconcile(); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	w.writes = nil
	for range 30 {
		w.tick()
		for _, job := range w.jobs() {
			if job.Status.CompletionTime == nil {
				w.end(&job, batchv1.JobComplete)
			}
		}
	}
	var statuses int
	for _, write := range w.writes {
		if write.Subresource == "status" {
			statuses++
		}
	}
	if statuses != 4 {
		t.Errorf("%d statuses were written in 30 seconds", statuses)
	}
	if behind := w.clock.Now().Sub(w.cronTab().Status.ScheduledUntil.Time); behind > 7*time.Second {
		t.Errorf("the status is behind by %s", behind)
	}
	// Those that the status before the last one told of are gone, but for three.
	if got := len(w.jobs()); got > 3+14 {
		t.Errorf("there are %d Jobs", got)
	}
}

func TestAnEditIsNoReasonToRunWhatWasDueBefore(t *testing.T) {
	w := newWorld(t)
	w.create(func(c *stablev1.CronTab) { c.Spec.Schedule = "0 0 1 1 *" })
	w.clock.Step(90 * time.Minute)
	w.change(schedule("* * * * *"))
	w.settle()
	if jobs := w.jobs(); len(jobs) > 0 {
		t.Errorf("there are %d Jobs", len(jobs))
	}
	w.change(suspend)
	w.settle()
	w.clock.Step(time.Hour)
	w.settle()
	w.expectReady("True", stablev1.ReasonSuspended)
	w.change(func(c *stablev1.CronTab) { c.Spec.Suspend = nil })
	w.settle()
	if jobs := w.jobs(); len(jobs) > 0 {
		t.Errorf("there are %d Jobs after it was resumed", len(jobs))
	}
	w.tick()
	if jobs := w.jobs(); len(jobs) != 1 {
		t.Errorf("there are %d Jobs when the next time has come", len(jobs))
	}
}

func TestReplaceWaitsUntilTheOldPodsAreGone(t *testing.T) {
	w := newWorld(t)
	w.create(policy(stablev1.ReplaceConcurrent))
	first, _ := w.startOfMinute()
	w.tick()
	w.settle()
	jobs := w.jobs()
	if len(jobs) != 1 || jobs[0].DeletionTimestamp == nil {
		t.Fatalf("the Jobs are %s", asJSON(jobs))
	}
	w.collect()
	w.settle()
	if diff := cmp.Diff([]time.Duration{time.Minute}, w.times(first)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestQueueRunsOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	w.create(policy(stablev1.QueueConcurrent))
	first, _ := w.startOfMinute()
	for range 3 {
		w.tick()
	}
	w.settle()
	if status := w.cronTab().Status; status.Queued != 3 || len(status.QueuedTimes) != 3 {
		t.Errorf("the status is %s", asJSON(status))
	}
	w.restart()
	var got [][]time.Duration
	for range 3 {
		jobs := w.jobs()
		w.end(&jobs[len(jobs)-1], batchv1.JobComplete)
		w.settle()
		got = append(got, w.times(first))
	}
	m := time.Minute
	want := [][]time.Duration{{0, m}, {0, m, 2 * m}, {0, m, 2 * m, 3 * m}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs after each end (-want +got):\n%s", diff)
	}
}

func TestOnDemand(t *testing.T) {
	w := newWorld(t)
	w.create(schedule("0 0 1 1 *"))
	asked := w.clock.Now().UTC()
	w.change(request(asked.Format(time.RFC3339)))
	for range 2 {
		w.settle()
		jobs := w.jobs()
		if len(jobs) != 1 || jobs[0].Name != jobName(w.cronTab(), asked) {
			t.Fatalf("the Jobs are %s", asJSON(jobs))
		}
		w.restart()
	}
	if status := w.cronTab().Status; !status.LastManualRunTime.Time.Equal(asked) || status.LastScheduleTime != nil || status.ActiveCount != 1 {
		t.Errorf("the status is %s", asJSON(status))
	}
	// Even if the Job is gone.
	jobs := w.jobs()
	w.remove(&jobs[0])
	w.settle()
	if jobs := w.jobs(); len(jobs) > 0 {
		t.Errorf("one request was answered twice")
	}
	w.change(request("soon"))
	w.events()
	w.settle()
	w.settle()
	if events := w.events(); len(events) != 1 {
		t.Errorf("events are %q", events)
	}
}

// The name of a run on demand is never that of a scheduled one.
func TestOnDemandAtANominalTime(t *testing.T) {
	w := newWorld(t)
	w.create(schedule("* * * * * *"), policy(stablev1.ForbidConcurrent))
	w.change(request(w.clock.Now().UTC().Format(time.RFC3339)), suspend)
	jobs := w.jobs()
	w.end(&jobs[0], batchv1.JobComplete)
	w.settle()
	manual := 0
	for _, job := range w.jobs() {
		if r := runOf(&job); r.manual && job.Name != jobName(w.cronTab(), r.at) {
			manual++
		}
	}
	if manual != 1 {
		t.Errorf("%d runs on demand have a name of their own", manual)
	}
}

func TestAForeignJobIsNeverTouched(t *testing.T) {
	w := newWorld(t)
	w.create()
	next := w.cronTab().Status.NextScheduleTime.Time
	foreign := w.foreign(jobName(w.cronTab(), next))
	w.tick()
	w.settle()
	w.expectReady("False", stablev1.ReasonJobNameTaken)
	if alarm := w.alarm.at(client.ObjectKeyFromObject(w.cronTab())); alarm.IsZero() || alarm.After(w.clock.Now().Add(time.Minute)) {
		t.Errorf("it tries again at %v, and it is %v", alarm, w.clock.Now())
	}
	w.remove(foreign)
	w.clock.Step(10 * time.Second)
	w.settle()
	w.expectReady("True", stablev1.ReasonScheduled)
	jobs := w.jobs()
	if last := jobs[len(jobs)-1]; last.Name != foreign.Name || last.UID == foreign.UID {
		t.Errorf("the last Job is %s", last.Name)
	}
}

func TestARefusedJobIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.create(schedule("0 0 1 1 *"))
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": zero}},
	}
	w.do(w.client.Create(t.Context(), quota))
	// Nobody but the controller of quotas does this.
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"count/jobs.batch": zero}
	w.do(w.client.Status().Update(t.Context(), quota))
	w.change(schedule("* * * * *"))
	w.settle()
	harness.Eventually(t, "the API server knows of the quota", func() bool {
		probe := jobOf(newCronTab(), noon)
		probe.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}
		return w.client.Create(t.Context(), probe, client.DryRunAll) != nil
	})
	w.tick()
	w.settle()
	w.expectReady("False", stablev1.ReasonJobRejected)
	w.do(w.client.Delete(t.Context(), quota))
	nominal := w.cronTab().Status.QueuedTimes[0].Time
	harness.Eventually(t, "the run is made up for", func() bool {
		w.clock.Step(time.Second)
		_, err := w.reconcile()
		return err == nil && len(w.jobs()) == 1
	})
	if got := runOf(&w.jobs()[0]).at; !got.Equal(nominal) {
		t.Errorf("the run is that of %v, not of %v", got, nominal)
	}
	w.settle()
	w.expectReady("True", stablev1.ReasonScheduled)
}

func TestATimeToLiveBeginsWhenTheRunIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.create(withTTL) // its first run was due when the controller began, and keeps its Job for a minute
	w.tick()
	job := w.jobs()[1]
	if job.Spec.TTLSecondsAfterFinished != nil || job.Annotations[stablev1.TTLAnnotation] != "0" {
		t.Errorf("before the status was written, the Job is %s", asJSON(job))
	}
	w.wrote()
	w.settle()
	if diff := cmp.Diff([]harness.Request{{Verb: "update", Subresource: "status"}, {Verb: "patch"}}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	job = w.jobs()[1]
	if got := job.Spec.TTLSecondsAfterFinished; got == nil || *got != 0 || len(job.Annotations) != 1 {
		t.Errorf("after the status was written, the Job is %s", asJSON(job))
	}
}
