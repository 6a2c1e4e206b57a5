package crontab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/controller/crontab/ping"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// fixture is a CronTab named tick. No controller runs the Jobs.
type fixture struct {
	*stories.World[*stablev1.CronTab]
	*Reconciler
	// podWait is the stuckAfter of the Reconciler; zero, because there are no Pods.
	podWait time.Duration
	// since is the minute from which on runs counts the created Jobs; see countCreations.
	since time.Time
	runs  *creationCounter
	// keepsJobs means that Step does not delete recorded Jobs.
	keepsJobs bool
	// pinged are the events and Jobs of the pings of all processes. They are not sent.
	pinged []string
}

// newFixture returns a fixture in its own namespace; tests run in parallel. Its clock starts five
// seconds into the next minute, so that new objects are in the past.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return startFixture(t, stories.Server)
}

func startFixture(t *testing.T, api stories.API) *fixture {
	t.Helper()
	f := &fixture{World: stories.New[*stablev1.CronTab](t, api, stories.Options{
		Name: "tick", AddToScheme: stablev1.AddToScheme, Indexes: Indexes,
		Cached: []client.ObjectList{&batchv1.JobList{}, &stablev1.CronTabList{}},
		Now:    time.Now().Truncate(time.Minute).Add(65 * time.Second),
	})}
	f.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*stablev1.CronTab] {
		f.Reconciler = NewReconciler(kube.NewBase(kind, cached, live, f.Recorder, f.Clock), func(pings ...*ping.Ping) {
			for _, one := range pings {
				f.pinged = append(f.pinged, string(one.Body.Event)+" "+string(one.Run))
			}
		})
		f.stuckAfter = f.podWait
		return f.Reconciler
	}
	f.Restart()
	return f
}

// create creates the CronTab tick and reconciles it.
func (f *fixture) create(changes ...mutation) {
	f.Helper()
	cronTab := newCronTab(changes...)
	cronTab.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: cronTab.Name, Annotations: cronTab.Annotations}
	f.Do(f.Client.Create(f.Context(), cronTab))
	f.Clock.SetTime(cronTab.CreationTimestamp.Truncate(time.Minute).Add(65 * time.Second))
	if _, hasMinutes := f.startOfMinute(); !hasMinutes {
		f.Fatal("the clock is not five seconds into a minute")
	}
	f.reconcileUntilStable()
	f.Writes = nil
}

// startOfMinute returns the current minute, and whether the clock is five seconds into it.
func (f *fixture) startOfMinute() (time.Time, bool) {
	minute := f.Clock.Now().Truncate(time.Minute)
	return minute, f.Clock.Now().Sub(minute) == 5*time.Second
}

// update changes the CronTab tick.
func (f *fixture) update(changes ...mutation) {
	f.Helper()
	f.Change(func(cronTab *stablev1.CronTab) {
		for _, change := range changes {
			change(cronTab)
		}
	})
}

// jobs lists all Jobs by name.
func (f *fixture) jobs() []batchv1.Job {
	f.Helper()
	var list batchv1.JobList
	f.Do(f.Client.List(f.Context(), &list, client.InNamespace(f.Namespace)))
	slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// jobTimes returns the scheduled times of all Jobs, relative to a minute.
func (f *fixture) jobTimes(since time.Time) []time.Duration {
	f.Helper()
	var times []time.Duration
	for i := range f.jobs() {
		times = append(times, runOf(&f.jobs()[i]).at.Sub(since))
	}
	return times
}

// finishJob sets the status of a Job as the Job controller does when it finishes.
func (f *fixture) finishJob(job *batchv1.Job, condition batchv1.JobConditionType) {
	f.Helper()
	now := metav1.NewTime(f.Clock.Now())
	criterion, reason := batchv1.JobSuccessCriteriaMet, ""
	if condition == batchv1.JobFailed {
		criterion, reason = batchv1.JobFailureTarget, batchv1.JobReasonBackoffLimitExceeded
	} else {
		job.Status.CompletionTime = &now
		job.Status.Succeeded = 1
	}
	job.Status.StartTime = &job.CreationTimestamp
	if job.Status.StartTime.After(now.Time) {
		job.Status.StartTime = &now
	}
	for _, kind := range []batchv1.JobConditionType{criterion, condition} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now,
		})
	}
	f.Do(f.Client.Status().Update(f.Context(), job))
}

// createPod creates a Pod of a Job whose container has a state.
func (f *fixture) createPod(job *batchv1.Job, phase corev1.PodPhase, state corev1.ContainerState) {
	f.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, Labels: map[string]string{batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: job.Spec.Template.Spec,
	}
	f.Do(f.Client.Create(f.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "default"}})) // needed by every Pod
	f.Do(f.Client.Create(f.Context(), pod))
	pod.Status = corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, State: state,
	}}}
	f.Do(f.Client.Status().Update(f.Context(), pod))
}

// deleteJobNow deletes a Job, including garbage collection.
func (f *fixture) deleteJobNow(job *batchv1.Job) {
	f.Helper()
	f.Do(client.IgnoreNotFound(f.Client.Delete(f.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	f.collectGarbage()
}

// collectGarbage removes the Jobs that are being deleted in the foreground.
func (f *fixture) collectGarbage() {
	f.Helper()
	for _, job := range f.jobs() {
		if job.DeletionTimestamp != nil {
			job.Finalizers = nil
			f.Do(client.IgnoreNotFound(f.Client.Update(f.Context(), &job)))
		}
	}
}

// reconcile reconciles the CronTab tick once, after the events of all Jobs.
func (f *fixture) reconcile() (reconcile.Result, error) {
	f.Helper()
	f.observeJobs(f.Client)
	return f.Reconcile(f.Context(), f.Object())
}

// observeJobs delivers the events of all Jobs that a cache has. There are none while the API server is away.
func (f *fixture) observeJobs(cache client.Reader) {
	f.Helper()
	if st := f.states.lookup(f.Key, f.Object().UID); st != nil {
		var jobs batchv1.JobList
		_ = cache.List(f.Context(), &jobs, client.InNamespace(f.Namespace))
		for _, job := range jobs.Items {
			st.observeCreation(job.Name)
		}
	}
}

// Step deletes the Jobs that are recorded, reconciles, and lets a quarter of a minute pass.
func (f *fixture) Step() (reconcile.Result, error) {
	f.Helper()
	f.observeJobs(f.Cached())
	if !f.keepsJobs {
		f.deleteRecordedJobs()
	}
	result, err := f.World.Step()
	if alarm := f.wakeups.at(f.Key); result.RequeueAfter == 0 && !alarm.IsZero() {
		result.RequeueAfter = max(alarm.Sub(f.Clock.Now()), 1)
	}
	f.Clock.Step(15 * time.Second)
	return result, err
}

// reconcileUntilStable reconciles the CronTab tick, advancing the clock for deferred status
// updates, until nothing is left to do.
func (f *fixture) reconcileUntilStable() {
	f.Helper()
	for range 300 {
		before, jobs := len(f.Writes), len(f.jobs())
		result, err := f.reconcile()
		if err != nil {
			f.Fatalf("Reconcile: %v", err)
		}
		alarm := f.wakeups.at(f.Key)
		switch {
		case !alarm.IsZero() && !alarm.After(f.Clock.Now()):
		case result.RequeueAfter > 0 && result.RequeueAfter < 10*time.Second:
			f.Clock.Step(result.RequeueAfter)
		case len(f.Writes) == before:
			return
		case len(f.jobs()) == jobs && f.Writes[len(f.Writes)-1].Verb == "create":
			return // the API server rejects the Job
		}
	}
	f.Fatalf("Still busy after 300 reconciles: %v", f.Writes)
}

// advanceToNextRun advances the clock to the next wakeup and reconciles.
func (f *fixture) advanceToNextRun() {
	f.Helper()
	alarm := f.wakeups.at(f.Key)
	if alarm.IsZero() {
		f.Fatal("no wakeup is set")
	}
	if alarm.After(f.Clock.Now()) {
		f.Clock.SetTime(alarm)
	}
	if _, err := f.reconcile(); err != nil {
		f.Fatalf("Reconcile: %v", err)
	}
}

// expectCondition fails the test unless a condition has this status, reason and message.
func (f *fixture) expectCondition(name string, status metav1.ConditionStatus, reason, message string) {
	f.Helper()
	got := meta.FindStatusCondition(f.Object().Status.Conditions, name)
	if got == nil || got.Status != status || got.Reason != reason || got.Message != message {
		f.Errorf("%s is %s, want %s, %s, %q", name, asJSON(got), status, reason, message)
	}
}

// createForeignJob creates a Job without an owner.
func (f *fixture) createForeignJob(name string) *batchv1.Job {
	f.Helper()
	job := jobOf(newCronTab(), noon)
	job.ObjectMeta = metav1.ObjectMeta{Namespace: f.Namespace, Name: name}
	if err := f.Client.Create(f.Context(), job); err != nil && !apierrors.IsAlreadyExists(err) {
		f.Fatal(err)
	}
	return job
}

// noon is a scheduled time of every schedule in full minutes.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// at returns a time of day on that date.
func at(clock string) time.Time {
	t := must(time.Parse(time.TimeOnly, clock))
	return noon.Truncate(24 * time.Hour).Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second)
}

type mutation func(*stablev1.CronTab)

// newCronTab returns a CronTab that runs every minute and was created at 11:00, with defaults
// filled in.
func newCronTab(changes ...mutation) *stablev1.CronTab {
	cronTab := &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{
			Name: "tick", Namespace: "market", UID: "tick-1", Generation: 2, CreationTimestamp: metav1.NewTime(at("11:00:00")),
		},
		Spec: stablev1.CronTabSpec{
			Schedule:                   "* * * * *",
			DaylightSaving:             stablev1.DaylightSavingOnce,
			MissedRuns:                 stablev1.LatestMissedRun,
			MaxMissedRuns:              ptr.To[int32](10),
			ConcurrencyPolicy:          stablev1.AllowConcurrent,
			Suspend:                    ptr.To(false),
			SuccessfulJobsHistoryLimit: ptr.To[int32](3),
			FailedJobsHistoryLimit:     ptr.To[int32](1),
			JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "main", Image: "busybox"}},
			}},
		},
	}
	for _, change := range changes {
		change(cronTab)
	}
	return cronTab
}

func withSchedule(text string) mutation {
	return func(c *stablev1.CronTab) { c.Spec.Schedule = stablev1.Schedule(text) }
}

func withPolicy(policy stablev1.ConcurrencyPolicy) mutation {
	return func(c *stablev1.CronTab) { c.Spec.ConcurrencyPolicy = policy }
}

func withMissedRuns(policy stablev1.MissedRunsPolicy, most int32) mutation {
	return func(c *stablev1.CronTab) { c.Spec.MissedRuns, c.Spec.MaxMissedRuns = policy, &most }
}

func withMaxConcurrency(most int32) mutation {
	return func(c *stablev1.CronTab) { c.Spec.MaxConcurrency = &most }
}

func withDeadline(seconds int64) mutation {
	return func(c *stablev1.CronTab) { c.Spec.StartingDeadlineSeconds = &seconds }
}

func withSuspend(c *stablev1.CronTab) { c.Spec.Suspend = ptr.To(true) }

func withRequest(text string) mutation {
	return func(c *stablev1.CronTab) {
		c.Spec.RunRequestedAt = nil
		if text != "" {
			c.Spec.RunRequestedAt = &metav1.Time{Time: must(time.Parse(time.RFC3339, text))}
		}
	}
}

// withParameters adds the parameters region, which is us or eu, and note.
func withParameters(c *stablev1.CronTab) {
	c.Spec.Parameters = []stablev1.Parameter{{Name: "region", Default: "us", Enum: []stablev1.ParameterValue{"us", "eu"}}, {Name: "note"}}
}

func withValue(name, value string) mutation {
	return func(c *stablev1.CronTab) {
		c.Spec.RunParameters = crontab.Values{name: stablev1.ParameterValue(value)}
	}
}

// jobOf returns the Job of a scheduled run, as stored.
func jobOf(cronTab *stablev1.CronTab, scheduled time.Time, changes ...func(*batchv1.Job)) *batchv1.Job {
	s := &pendingRun{at: scheduled, name: jobName(cronTab, scheduled)}
	job := newJob(cronTab, must(jobTemplate(cronTab)), s, time.UTC)
	job.UID = types.UID(fmt.Sprintf("job-%s", scheduled.UTC().Format(time.TimeOnly)))
	job.CreationTimestamp = metav1.NewTime(scheduled)
	for _, change := range changes {
		change(job)
	}
	return job
}

func finishedWith(condition batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(job.CreationTimestamp.Add(10 * time.Second)),
		}}
	}
}

func onDemand(job *batchv1.Job) {
	job.Annotations[stablev1.RunRequestedAtAnnotation] = job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
}

func terminating(job *batchv1.Job) { job.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }

// observationOf returns the observation of a CronTab whose runs are decided until a time. The
// controller has been active since 11:00.
func observationOf(cronTab *stablev1.CronTab, until time.Time, jobs ...*batchv1.Job) observation {
	seen := observation{activeSince: at("11:00:00")}
	seen.schedule, seen.invalid = newSchedule(cronTab)
	seen.progress = progress{hash: scheduleHash(&cronTab.Spec), decidedUntil: until, lastScheduled: until}
	for _, job := range jobs {
		seen.runs = append(seen.runs, runOf(job))
	}
	seen.recorded = seen.progress
	return seen
}

// withoutStatus returns the observation of a CronTab before its first reconcile.
func withoutStatus(cronTab *stablev1.CronTab) observation {
	seen := observationOf(cronTab, time.Time{})
	seen.progress, seen.recorded = progress{}, progress{}
	return seen
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// asJSON returns indented JSON.
func asJSON(value any) string { return string(must(json.MarshalIndent(value, "", "  "))) }

var zero = resource.MustParse("0")

func TestMain(m *testing.M) { env.Main(m) }
