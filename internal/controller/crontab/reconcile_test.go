package crontab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestRunTakesTwoWrites(t *testing.T) {
	f := newFixture(t)
	f.create()
	first, _ := f.startOfMinute()
	for range 5 {
		f.advanceToNextRun()
		f.reconcileUntilStable()
	}
	want := []harness.Request{{Verb: "create"}, {Verb: "update", Subresource: "status"}}
	if diff := cmp.Diff(append(append(append(append(want, want...), want...), want...), want...), f.Wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	m := time.Minute
	if diff := cmp.Diff([]time.Duration{0, m, 2 * m, 3 * m, 4 * m, 5 * m}, f.jobTimes(first)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	status := f.Object().Status
	if len(status.Active) != 6 || !status.LastScheduleTime.Time.Equal(first.Add(5*m)) || !status.NextScheduleTime.Time.Equal(first.Add(6*m)) {
		t.Errorf("the status is %s", asJSON(status))
	}
	f.ExpectReady("True", stablev1.ReasonScheduled)
	if events := f.Events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
}

func TestJobEqualsThatOfCronJob(t *testing.T) {
	f := newFixture(t)
	zone := "Asia/Kathmandu"
	f.create(func(c *stablev1.CronTab) {
		c.Spec.TimeZone = commonv1.TimeZone(zone)
		c.Spec.JobTemplate = &stablev1.JobTemplate{Spec: &batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: c.Spec.JobTemplate.PodSpec}}}
		c.Spec.JobTemplate.Labels = map[string]string{"app": "tick"}
		c.Spec.JobTemplate.Annotations = map[string]string{"note": "x"}
		c.Spec.JobTemplate.Spec.Template.Annotations = map[string]string{"note": "y", batchv1.CronJobScheduledTimestampAnnotation: "copied from a Job"}
	})
	scheduled, _ := f.startOfMinute()
	job := f.jobs()[0]
	if want := jobName(f.Object(), scheduled); job.Name != want {
		t.Errorf("name is %s, want %s", job.Name, want)
	}
	kathmandu := must(time.LoadLocation(zone))
	want := map[string]string{"note": "x", batchv1.CronJobScheduledTimestampAnnotation: scheduled.In(kathmandu).Format(time.RFC3339)}
	if diff := cmp.Diff(want, job.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	want["note"] = "y"
	if diff := cmp.Diff(want, job.Spec.Template.Annotations); diff != "" {
		t.Errorf("annotations of the pods (-want +got):\n%s", diff)
	}
	if job.Labels["app"] != "tick" || job.Labels[stablev1.NameLabel] != "tick" || job.Spec.Template.Labels[stablev1.NameLabel] != "tick" || !metav1.IsControlledBy(&job, f.Object()) {
		t.Errorf("the Job is %s", asJSON(job.ObjectMeta))
	}
}

func TestFinishedJobsAreReported(t *testing.T) {
	f := newFixture(t)
	f.create()
	f.advanceToNextRun()
	jobs := f.jobs()
	f.finishJob(&jobs[0], batchv1.JobComplete)
	f.createPod(&jobs[1], corev1.PodFailed, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: metav1.NewTime(f.Clock.Now())},
	})
	f.finishJob(&jobs[1], batchv1.JobFailed)
	f.reconcileUntilStable()
	status := f.Object().Status
	if len(status.Active) != 0 || status.LastSuccessfulTime == nil {
		t.Errorf("the status is %s", asJSON(status))
	}
	failure := fmt.Sprintf("Job %q failed: BackoffLimitExceeded, exit code 3. To see its logs, run: kubectl logs --namespace %s job/%[1]s",
		jobs[1].Name, f.Namespace)
	if diff := cmp.Diff([]string{"Warning JobFailed " + failure}, f.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	want := &stablev1.FinishedRun{JobName: jobs[1].Name, Result: stablev1.RunFailed, FinishTime: status.LastRun.FinishTime,
		Reason: batchv1.JobReasonBackoffLimitExceeded, ExitCode: ptr.To[int32](3)}
	if diff := cmp.Diff(want, status.LastRun); diff != "" {
		t.Errorf("last run (-want +got):\n%s", diff)
	}
	f.expectCondition(stablev1.ConditionLastRunSucceeded, metav1.ConditionFalse, stablev1.ReasonJobFailed, failure)

	// The result outlasts the Job and its Pods, and a restart of the controller.
	f.Restart()
	f.deleteJobNow(&jobs[1])
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionLastRunSucceeded, metav1.ConditionFalse, stablev1.ReasonJobFailed, failure)
	if got := f.Events(); len(got) > 0 {
		t.Errorf("events of a known failure: %q", got)
	}
	f.advanceToNextRun()
	f.reconcileUntilStable()
	next := f.jobs()
	f.finishJob(&next[len(next)-1], batchv1.JobComplete)
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionLastRunSucceeded, metav1.ConditionTrue, stablev1.ReasonJobSucceeded, fmt.Sprintf("Job %q succeeded", next[len(next)-1].Name))
}

// A Job that was deleted to be replaced and does not go away.
func TestDeletedJobIsStuck(t *testing.T) {
	f := newFixture(t)
	f.podWait = stuckAfter
	f.Restart()
	f.create(withSchedule("0 * * * *"), withPolicy(stablev1.ReplaceConcurrent))
	f.advanceToNextRun()
	job := f.jobs()[0]
	job.Finalizers = []string{"example.com/hold"}
	f.Do(f.Client.Update(t.Context(), &job))
	f.Do(f.Client.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	f.Events()
	f.reconcileUntilStable()
	message := fmt.Sprintf(`Job %q is being deleted and counts toward concurrencyPolicy until it is gone. The finalizer "example.com/hold" holds it; remove that if nothing else will. `+
		"To see it, run: kubectl get job --namespace %s %[1]s --output yaml", job.Name, f.Namespace)
	f.expectCondition(stablev1.ConditionRunsStuck, metav1.ConditionTrue, stablev1.ReasonJobNotDeleted, message)
	if diff := cmp.Diff([]string{"Warning JobNotDeleted " + message}, f.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.collectGarbage()
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionRunsStuck, metav1.ConditionFalse, stablev1.ReasonNoRunStuck, "No run waits for its Pods longer than usual")
}

func TestStuckRun(t *testing.T) {
	f := newFixture(t)
	f.podWait = stuckAfter
	f.Restart()
	f.create(withSchedule("0 * * * *"))
	f.advanceToNextRun()
	job := f.jobs()[0]
	job.Status.StartTime, job.Status.Active = ptr.To(metav1.NewTime(f.Clock.Now())), 1
	f.Do(f.Client.Status().Update(t.Context(), &job))
	f.reconcileUntilStable()
	none := func() {
		f.Helper()
		f.expectCondition(stablev1.ConditionRunsStuck, metav1.ConditionFalse, stablev1.ReasonNoRunStuck, "No run waits for its Pods longer than usual")
	}
	none()
	f.createPod(&job, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})
	f.Events()
	f.advanceToNextRun() // after a minute
	f.reconcileUntilStable()
	message := fmt.Sprintf(`Job %q has no ready Pod. Container "main" of Pod %[1]q waits: ImagePullBackOff, image "busybox". `+
		"To see its events, run: kubectl describe pods --namespace %s --selector batch.kubernetes.io/job-name=%[1]s", job.Name, f.Namespace)
	f.expectCondition(stablev1.ConditionRunsStuck, metav1.ConditionTrue, stablev1.ReasonPodsNotReady, message)
	if diff := cmp.Diff([]string{"Warning PodsNotReady " + message}, f.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// A restart of the controller changes nothing, and is no new event.
	f.Restart()
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionRunsStuck, metav1.ConditionTrue, stablev1.ReasonPodsNotReady, message)
	if got := f.Events(); len(got) > 0 {
		t.Errorf("events: %q", got)
	}
	job.Status.Ready = ptr.To[int32](1)
	f.Do(f.Client.Status().Update(t.Context(), &job))
	f.reconcileUntilStable()
	none()
}

// Kueue's webhook suspends a new Job with its label, and Kueue resumes the Job when there is quota. Until then the run counts, and is not
// stuck.
func TestJobInAQueueOfKueue(t *testing.T) {
	const queue = "kueue.x-k8s.io/queue-name"
	f := newFixture(t)
	f.podWait = stuckAfter
	f.Restart()
	f.create(withSchedule("0 * * * *"), withPolicy(stablev1.ForbidConcurrent), func(c *stablev1.CronTab) {
		c.Spec.JobTemplate.Labels = map[string]string{queue: "team"}
	})
	f.advanceToNextRun()
	job := f.jobs()[0]
	if job.Labels[queue] != "team" {
		t.Errorf("labels of the Job: %v", job.Labels)
	}
	job.Spec.Suspend = ptr.To(true)
	f.Do(f.Client.Update(t.Context(), &job))
	f.Events()
	f.advanceToNextRun()
	f.advanceToNextRun()
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionRunsStuck, metav1.ConditionFalse, stablev1.ReasonNoRunStuck, "No run waits for its Pods longer than usual")
	if jobs := f.jobs(); len(jobs) != 1 || !ptr.Deref(jobs[0].Spec.Suspend, false) {
		t.Fatalf("%d Jobs, the first with suspend %v", len(jobs), jobs[0].Spec.Suspend)
	}
	job = f.jobs()[0]
	job.Spec.Suspend = ptr.To(false)
	f.Do(f.Client.Update(t.Context(), &job))
	f.finishJob(&job, batchv1.JobComplete)
	f.advanceToNextRun()
	f.reconcileUntilStable()
	if got := len(f.jobs()); got != 2 {
		t.Errorf("after the first run there are %d Jobs, want 2", got)
	}
}

func TestHistoryLimits(t *testing.T) {
	f := newFixture(t)
	f.create()
	for range 5 {
		f.advanceToNextRun()
		f.reconcileUntilStable()
	}
	for _, job := range f.jobs() {
		f.finishJob(&job, batchv1.JobComplete)
	}
	before := f.jobTimes(time.Time{})
	f.reconcileUntilStable()
	if diff := cmp.Diff(before[3:], f.jobTimes(time.Time{})); diff != "" {
		t.Errorf("remaining runs (-want +got):\n%s", diff)
	}
	f.advanceToNextRun()
	f.reconcileUntilStable()
	if got := len(f.jobs()); got != 4 {
		t.Errorf("there are %d Jobs, want three finished and a new one", got)
	}
}

// Deleting a long history takes a while and must not delay runs.
func TestHistoryIsDeletedInBatches(t *testing.T) {
	f := newFixture(t)
	f.create(withMissedRuns(stablev1.AllMissedRuns, 100))
	f.Clock.Step(25 * time.Minute)
	f.reconcileUntilStable()
	for _, job := range f.jobs() {
		f.finishJob(&job, batchv1.JobComplete)
	}
	f.advanceToNextRun() // cleanup is deferred in favor of runs at first, for a few seconds
	f.Clock.SetTime(f.wakeups.at(client.ObjectKeyFromObject(f.Object())))
	before := len(f.jobs())
	result, err := f.reconcile()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(f.jobs()); got != before-cleanupBatch || result.RequeueAfter != cleanupInterval {
		t.Errorf("%d Jobs have become %d, and the next batch is after %v", before, got, result.RequeueAfter)
	}
	f.reconcileUntilStable()
	if got := len(f.jobs()); got > 5 {
		t.Errorf("there are %d Jobs", got)
	}
}

func TestTheLastOfSeveralLateRunsHasAnEvent(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("*/2 * * * *"), withMissedRuns(stablev1.AllMissedRuns, 10))
	f.reconcileUntilStable()
	f.Events()
	before, last := len(f.jobs()), f.wakeups.at(f.Key).Add(8*time.Minute)
	f.Clock.SetTime(last.Add(90 * time.Second))
	f.Restart()
	f.reconcileUntilStable()
	jobs := len(f.jobs()) - before
	var created []string
	for _, event := range f.Events() {
		if strings.HasPrefix(event, "Normal SuccessfulCreate Created Job") {
			created = append(created, event)
		}
	}
	if jobs != 5 || len(created) != 1 || !strings.Contains(created[0], fmt.Sprintf("tick-%d", last.Unix())) {
		t.Errorf("%d Jobs, with events %q", jobs, created)
	}
}

func TestOnlyVeryLateRunsHaveAnEvent(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 * * * *"))
	for _, tt := range []struct {
		late time.Duration
		want int
	}{{0, 0}, {50 * time.Second, 0}, {70 * time.Second, 1}} {
		due := f.wakeups.at(client.ObjectKey{Namespace: f.Namespace, Name: "tick"})
		f.Clock.SetTime(due.Add(tt.late))
		f.reconcileUntilStable()
		var created int
		for _, event := range f.Events() {
			if strings.HasPrefix(event, "Normal SuccessfulCreate Created Job") {
				created++
			}
		}
		if created != tt.want {
			t.Errorf("%s late: %d events, want %d", tt.late, created, tt.want)
		}
	}
}

// Even if runs are always due, cleanup happens.
func TestContinuousRunsDoNotStarveCleanup(t *testing.T) {
	f := newFixture(t)
	f.create()
	f.update(withSchedule("* * * * * *"))
	if _, err := f.reconcile(); err != nil {
		t.Fatalf("Reconcile: %v", err)
	}
	f.Writes = nil
	for range 30 {
		f.advanceToNextRun()
		for _, job := range f.jobs() {
			if job.Status.CompletionTime == nil {
				f.finishJob(&job, batchv1.JobComplete)
			}
		}
	}
	var statuses int
	for _, write := range f.Writes {
		if write.Subresource == "status" {
			statuses++
		}
	}
	if statuses != 4 {
		t.Errorf("%d statuses were written in 30 seconds", statuses)
	}
	if behind := f.Clock.Now().Sub(f.Object().Status.ScheduledUntil.Time); behind > 7*time.Second {
		t.Errorf("the status is behind by %s", behind)
	}
	// All but three of the recorded Jobs are deleted.
	if got := len(f.jobs()); got > 3+14 {
		t.Errorf("there are %d Jobs", got)
	}
}

func TestEditDoesNotStartEarlierRuns(t *testing.T) {
	f := newFixture(t)
	f.create(func(c *stablev1.CronTab) { c.Spec.Schedule = "0 0 1 1 *" })
	f.Clock.Step(90 * time.Minute)
	f.update(withSchedule("* * * * *"))
	f.reconcileUntilStable()
	if jobs := f.jobs(); len(jobs) > 0 {
		t.Errorf("there are %d Jobs", len(jobs))
	}
	f.update(withSuspend)
	f.reconcileUntilStable()
	f.Clock.Step(time.Hour)
	f.reconcileUntilStable()
	f.ExpectReady("True", stablev1.ReasonSuspended)
	f.update(func(c *stablev1.CronTab) { c.Spec.Suspend = nil })
	f.reconcileUntilStable()
	if jobs := f.jobs(); len(jobs) > 0 {
		t.Errorf("there are %d Jobs after it was resumed", len(jobs))
	}
	f.advanceToNextRun()
	if jobs := f.jobs(); len(jobs) != 1 {
		t.Errorf("there are %d Jobs when the next run is due", len(jobs))
	}
}

func TestReplaceWaitsForPodDeletion(t *testing.T) {
	f := newFixture(t)
	f.create(withPolicy(stablev1.ReplaceConcurrent))
	first, _ := f.startOfMinute()
	f.advanceToNextRun()
	f.reconcileUntilStable()
	jobs := f.jobs()
	if len(jobs) != 1 || jobs[0].DeletionTimestamp == nil {
		t.Fatalf("the Jobs are %s", asJSON(jobs))
	}
	f.collectGarbage()
	f.reconcileUntilStable()
	if diff := cmp.Diff([]time.Duration{time.Minute}, f.jobTimes(first)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestQueueRunsInOrder(t *testing.T) {
	f := newFixture(t)
	f.create(withPolicy(stablev1.QueueConcurrent))
	first, _ := f.startOfMinute()
	for range 3 {
		f.advanceToNextRun()
	}
	f.reconcileUntilStable()
	if status := f.Object().Status; len(status.QueuedTimes) != 3 {
		t.Errorf("the status is %s", asJSON(status))
	}
	f.Restart()
	var got [][]time.Duration
	for range 3 {
		jobs := f.jobs()
		f.finishJob(&jobs[len(jobs)-1], batchv1.JobComplete)
		f.reconcileUntilStable()
		got = append(got, f.jobTimes(first))
	}
	m := time.Minute
	want := [][]time.Duration{{0, m}, {0, m, 2 * m}, {0, m, 2 * m, 3 * m}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs after each end (-want +got):\n%s", diff)
	}
}

func TestOnDemand(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 0 1 1 *"))
	asked := f.Clock.Now().UTC()
	f.update(withRequest(asked.Format(time.RFC3339)))
	for range 2 {
		f.reconcileUntilStable()
		jobs := f.jobs()
		if len(jobs) != 1 || jobs[0].Name != jobName(f.Object(), asked) {
			t.Fatalf("the Jobs are %s", asJSON(jobs))
		}
		f.Restart()
	}
	if status := f.Object().Status; !status.LastRunRequestedAt.Time.Equal(asked) || status.LastScheduleTime != nil || len(status.Active) != 1 {
		t.Errorf("the status is %s", asJSON(status))
	}
	// The same holds when the Job is gone.
	jobs := f.jobs()
	f.deleteJobNow(&jobs[0])
	f.reconcileUntilStable()
	if jobs := f.jobs(); len(jobs) > 0 {
		t.Errorf("one request started two runs")
	}
}

// Runs that are requested one after the other all start: the status says at once that the next may be requested.
func TestOnDemandInARow(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 0 1 1 *"))
	for range 8 {
		asked := crontab.NewRequest(f.Object(), f.Clock.Now())
		f.update(withRequest(formatRequest(asked.Time)))
		if _, err := f.reconcile(); err != nil {
			t.Fatal(err)
		}
		if open := crontab.OpenRequest(f.Object()); !open.IsZero() {
			t.Fatalf("after the start, the run requested at %v is open", open)
		}
	}
	if jobs := f.jobs(); len(jobs) != 8 {
		t.Errorf("8 requests started %d runs", len(jobs))
	}
}

// Without the webhook, a request may take the place of one that waits. That is said.
func TestReplacedRequest(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 0 1 1 *"), withPolicy(stablev1.ForbidConcurrent))
	ask := func(at string, events ...string) {
		t.Helper()
		f.update(withRequest(at))
		f.reconcileUntilStable()
		var got []string
		for _, event := range f.Events() {
			if strings.Contains(event, stablev1.ReasonRunRequestReplaced) {
				got = append(got, event)
			}
		}
		if diff := cmp.Diff(events, got); diff != "" {
			t.Errorf("after the request at %s (-want +got):\n%s", at, diff)
		}
	}
	ask("2126-03-04T12:00:00Z")
	ask("2126-03-04T12:00:01Z") // waits
	ask("2126-03-04T12:00:02Z", "Warning RunRequestReplaced The run requested at 2126-03-04T12:00:01Z will not start: another was requested before it could")
	ask("") // cancelled
	ask("2126-03-04T12:00:03Z")
}

// The Job name of a run on demand differs from that of any scheduled run.
func TestOnDemandAtScheduledTime(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("* * * * * *"), withPolicy(stablev1.ForbidConcurrent))
	f.update(withRequest(f.Clock.Now().UTC().Format(time.RFC3339)), withSuspend)
	jobs := f.jobs()
	f.finishJob(&jobs[0], batchv1.JobComplete)
	f.reconcileUntilStable()
	manual := 0
	for _, job := range f.jobs() {
		if r := runOf(&job); r.manual && job.Name != jobName(f.Object(), r.at) {
			manual++
		}
	}
	if manual != 1 {
		t.Errorf("%d runs on demand have a name of their own", manual)
	}
}

func TestForeignJobIsNotTouched(t *testing.T) {
	f := newFixture(t)
	f.create()
	next := f.Object().Status.NextScheduleTime.Time
	foreign := f.createForeignJob(jobName(f.Object(), next))
	f.advanceToNextRun()
	f.reconcileUntilStable()
	f.ExpectReady("False", stablev1.ReasonJobNameTaken)
	if alarm := f.wakeups.at(client.ObjectKeyFromObject(f.Object())); alarm.IsZero() || alarm.After(f.Clock.Now().Add(time.Minute)) {
		t.Errorf("next attempt is at %v, now is %v", alarm, f.Clock.Now())
	}
	f.deleteJobNow(foreign)
	f.Clock.Step(10 * time.Second)
	f.reconcileUntilStable()
	f.ExpectReady("True", stablev1.ReasonScheduled)
	jobs := f.jobs()
	if last := jobs[len(jobs)-1]; last.Name != foreign.Name || last.UID == foreign.UID {
		t.Errorf("the last Job is %s", last.Name)
	}
}

func TestRejectedJobIsRetried(t *testing.T) {
	f := newFixture(t)
	f.create(withSchedule("0 0 1 1 *"))
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": zero}},
	}
	f.Do(f.Client.Create(t.Context(), quota))
	// The quota controller does not run here.
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"count/jobs.batch": zero}
	f.Do(f.Client.Status().Update(t.Context(), quota))
	f.update(withSchedule("* * * * *"))
	f.reconcileUntilStable()
	harness.Eventually(t, "the API server knows of the quota", func() bool {
		probe := jobOf(newCronTab(), noon)
		probe.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: "probe"}
		return f.Client.Create(t.Context(), probe, client.DryRunAll) != nil
	})
	f.advanceToNextRun()
	f.reconcileUntilStable()
	f.ExpectReady("False", stablev1.ReasonJobRejected)
	f.Do(f.Client.Delete(t.Context(), quota))
	scheduled := f.Object().Status.QueuedTimes[0].Time
	harness.Eventually(t, "the run starts", func() bool {
		f.Clock.Step(time.Second)
		_, err := f.reconcile()
		return err == nil && len(f.jobs()) == 1
	})
	if got := runOf(&f.jobs()[0]).at; !got.Equal(scheduled) {
		t.Errorf("scheduled time is %v, want %v", got, scheduled)
	}
	f.reconcileUntilStable()
	f.ExpectReady("True", stablev1.ReasonScheduled)
}

func TestTTLIsSetWhenRunIsRecorded(t *testing.T) {
	f := newFixture(t)
	f.create(withTTL) // its first run is from before the controller was active, so its Job stays for a minute
	f.advanceToNextRun()
	job := f.jobs()[1]
	if job.Spec.TTLSecondsAfterFinished != nil || job.Annotations[stablev1.TTLAnnotation] != "0" {
		t.Errorf("before the status was written, the Job is %s", asJSON(job))
	}
	f.Wrote()
	f.reconcileUntilStable()
	if diff := cmp.Diff([]harness.Request{{Verb: "update", Subresource: "status"}, {Verb: "patch"}}, f.Wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	job = f.jobs()[1]
	if got := job.Spec.TTLSecondsAfterFinished; got == nil || *got != 0 || len(job.Annotations) != 1 {
		t.Errorf("after the status was written, the Job is %s", asJSON(job))
	}
}
