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
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// world is a namespace of an API server with a CronTab tick, and a Reconciler that is
// called directly. Nobody runs Jobs.
type world struct {
	*testing.T
	namespace string
	client    client.WithWatch
	clock     *clocktesting.FakeClock
	recorder  *events.FakeRecorder
	// writes are the requests that changed something since the last look.
	writes []harness.Request
	*Reconciler
}

// newWorld returns a world of its own for each test; they run in parallel. It begins
// five seconds into the next minute: what is created is a little older.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{
		T:         t,
		namespace: env.Namespace(t),
		client:    harness.Client(t, env.Config(t), harness.Scheme(t, stablev1.AddToScheme), Indexes...),
		clock:     clocktesting.NewFakeClock(time.Now().Truncate(time.Minute).Add(65 * time.Second)),
		recorder:  events.NewFakeRecorder(100),
	}
	w.restart()
	return w
}

// restart is a new process that remembers nothing.
func (w *world) restart() { w.useClient(w.client) }

// useClient is a restart with another client.
func (w *world) useClient(c client.WithWatch) {
	counted := harness.Observe(c, func(request harness.Request) error {
		if request.IsWrite() {
			w.writes = append(w.writes, request)
		}
		return nil
	}, func(harness.Request) error { return nil })
	w.Reconciler = NewReconciler(counted, w.client, w.recorder, w.clock)
}

// create creates the CronTab tick and lets the controller see it.
func (w *world) create(changes ...change) {
	w.Helper()
	cronTab := newCronTab(changes...)
	cronTab.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: cronTab.Name, Annotations: cronTab.Annotations}
	w.do(w.client.Create(w.Context(), cronTab))
	w.clock.SetTime(cronTab.CreationTimestamp.Truncate(time.Minute).Add(65 * time.Second))
	if _, hasMinutes := w.startOfMinute(); !hasMinutes {
		w.Fatal("the clock is not five seconds into a minute")
	}
	w.settle()
	w.writes = nil
}

// startOfMinute returns the minute that has begun five seconds ago.
func (w *world) startOfMinute() (time.Time, bool) {
	minute := w.clock.Now().Truncate(time.Minute)
	return minute, w.clock.Now().Sub(minute) == 5*time.Second
}

// cronTab returns the CronTab tick as it is.
func (w *world) cronTab() *stablev1.CronTab {
	w.Helper()
	cronTab := &stablev1.CronTab{}
	w.do(w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "tick"}, cronTab))
	return cronTab
}

// change changes the CronTab tick.
func (w *world) change(changes ...change) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cronTab := w.cronTab()
		for _, change := range changes {
			change(cronTab)
		}
		return w.client.Update(w.Context(), cronTab)
	}))
}

// jobs returns all Jobs, by their names.
func (w *world) jobs() []batchv1.Job {
	w.Helper()
	var list batchv1.JobList
	w.do(w.client.List(w.Context(), &list, client.InNamespace(w.namespace)))
	slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// times returns the times of the Jobs of CronTab tick, relative to a minute.
func (w *world) times(since time.Time) []time.Duration {
	w.Helper()
	var times []time.Duration
	for i := range w.jobs() {
		times = append(times, runOf(&w.jobs()[i]).at.Sub(since))
	}
	return times
}

// end plays the controller of Jobs: a Job ends.
func (w *world) end(job *batchv1.Job, condition batchv1.JobConditionType) {
	w.Helper()
	now := metav1.NewTime(w.clock.Now())
	criterion := batchv1.JobSuccessCriteriaMet
	if condition == batchv1.JobFailed {
		criterion = batchv1.JobFailureTarget
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
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	w.do(w.client.Status().Update(w.Context(), job))
}

// remove deletes a Job at once: it plays the garbage collector, too.
func (w *world) remove(job *batchv1.Job) {
	w.Helper()
	w.do(client.IgnoreNotFound(w.client.Delete(w.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	w.collect()
}

// collect plays the garbage collector: Jobs that are deleted in the foreground go.
func (w *world) collect() {
	w.Helper()
	for _, job := range w.jobs() {
		if job.DeletionTimestamp != nil {
			job.Finalizers = nil
			w.do(client.IgnoreNotFound(w.client.Update(w.Context(), &job)))
		}
	}
}

// reconcile reconciles the CronTab tick once, after events have come for all Jobs.
func (w *world) reconcile() (reconcile.Result, error) {
	w.Helper()
	cronTab := w.cronTab()
	if m := w.known.find(client.ObjectKeyFromObject(cronTab), cronTab.UID); m != nil {
		for _, job := range w.jobs() {
			m.met(job.Name)
		}
	}
	return w.Reconcile(w.Context(), cronTab)
}

// settle reconciles the CronTab tick, and lets the seconds pass for which a status is
// held back, until there is nothing more to do for now.
func (w *world) settle() {
	w.Helper()
	for range 300 {
		before, jobs := len(w.writes), len(w.jobs())
		result, err := w.reconcile()
		if err != nil {
			w.Fatalf("Reconcile: %v", err)
		}
		alarm := w.alarm.at(client.ObjectKey{Namespace: w.namespace, Name: "tick"})
		switch {
		case !alarm.IsZero() && !alarm.After(w.clock.Now()):
		case result.RequeueAfter > 0 && result.RequeueAfter < 10*time.Second:
			w.clock.Step(result.RequeueAfter)
		case len(w.writes) == before:
			return
		case len(w.jobs()) == jobs && w.writes[len(w.writes)-1].Verb == "create":
			return // The API refuses the Job.
		}
	}
	w.Fatalf("Still busy after 300 reconciles: %v", w.writes)
}

// tick lets the alarm ring, at its time.
func (w *world) tick() {
	w.Helper()
	alarm := w.alarm.at(client.ObjectKey{Namespace: w.namespace, Name: "tick"})
	if alarm.IsZero() {
		w.Fatal("no alarm is set")
	}
	if alarm.After(w.clock.Now()) {
		w.clock.SetTime(alarm)
	}
	if _, err := w.reconcile(); err != nil {
		w.Fatalf("Reconcile: %v", err)
	}
}

// wrote returns the requests that changed something since the last call.
func (w *world) wrote() []harness.Request {
	writes := w.writes
	w.writes = nil
	return writes
}

// events returns the events since the last call.
func (w *world) events() []string { return harness.Events(w.recorder) }

// expectReady fails the test if Ready of the CronTab has not this status and reason.
func (w *world) expectReady(status metav1.ConditionStatus, reason string) {
	w.Helper()
	cronTab := w.cronTab()
	statuscheck.Verify(w, cronTab)
	ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady)
	if ready == nil || ready.Status != status || ready.Reason != reason {
		w.Errorf("Ready is %s; want %s, %s", asJSON(ready), status, reason)
	}
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// foreign creates a Job of that name without an owner.
func (w *world) foreign(name string) *batchv1.Job {
	w.Helper()
	job := jobOf(newCronTab(), noon)
	job.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: name}
	if err := w.client.Create(w.Context(), job); err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	return job
}

// noon is a time at which a schedule of full minutes has a run.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// at returns the time of a clock on that day.
func at(clock string) time.Time {
	t := must(time.Parse(time.TimeOnly, clock))
	return noon.Truncate(24 * time.Hour).Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second)
}

type change func(*stablev1.CronTab)

// newCronTab returns a CronTab that runs every minute, was created at 11:00 and has run
// until 11:59, as the API server has it.
func newCronTab(changes ...change) *stablev1.CronTab {
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

func schedule(text string) change {
	return func(c *stablev1.CronTab) { c.Spec.Schedule = stablev1.Schedule(text) }
}

func policy(policy stablev1.ConcurrencyPolicy) change {
	return func(c *stablev1.CronTab) { c.Spec.ConcurrencyPolicy = policy }
}

func missed(policy stablev1.MissedRunsPolicy, most int32) change {
	return func(c *stablev1.CronTab) { c.Spec.MissedRuns, c.Spec.MaxMissedRuns = policy, &most }
}

func atOnce(most int32) change {
	return func(c *stablev1.CronTab) { c.Spec.MaxConcurrency = &most }
}

func deadline(seconds int64) change {
	return func(c *stablev1.CronTab) { c.Spec.StartingDeadlineSeconds = &seconds }
}

func suspend(c *stablev1.CronTab) { c.Spec.Suspend = ptr.To(true) }

func request(text string) change {
	return func(c *stablev1.CronTab) { c.Annotations = map[string]string{stablev1.RunRequestedAtAnnotation: text} }
}

// jobOf returns the Job of the run of a CronTab at a time, as the API server has it.
func jobOf(cronTab *stablev1.CronTab, nominal time.Time, changes ...func(*batchv1.Job)) *batchv1.Job {
	s := &start{at: nominal, name: jobName(cronTab, nominal)}
	job := newJob(cronTab, must(templateOf(cronTab)), s, time.UTC)
	job.UID = types.UID(fmt.Sprintf("job-%s", nominal.UTC().Format(time.TimeOnly)))
	job.CreationTimestamp = metav1.NewTime(nominal)
	for _, change := range changes {
		change(job)
	}
	return job
}

func ended(condition batchv1.JobConditionType) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(job.CreationTimestamp.Add(10 * time.Second)),
		}}
	}
}

func onDemand(job *batchv1.Job) {
	job.Annotations[stablev1.RunRequestedAtAnnotation] = job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
}

func beingDeleted(job *batchv1.Job) { job.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }

// see returns the observation of a CronTab that has run until then, with these Jobs. The
// controller has been running since 11:00.
func see(cronTab *stablev1.CronTab, until time.Time, jobs ...*batchv1.Job) observation {
	seen := observation{since: at("11:00:00")}
	seen.times, seen.invalid = newTimetable(cronTab)
	seen.progress = progress{hash: scheduleHash(&cronTab.Spec), until: until, last: until}
	for _, job := range jobs {
		seen.runs = append(seen.runs, runOf(job))
	}
	seen.recorded = seen.progress
	return seen
}

// withoutStatus returns the observation of a CronTab that the controller has never seen.
func withoutStatus(cronTab *stablev1.CronTab) observation {
	seen := see(cronTab, time.Time{})
	seen.progress, seen.recorded = progress{}, progress{}
	return seen
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// asJSON returns value as JSON with indentation.
func asJSON(value any) string { return string(must(json.MarshalIndent(value, "", "  "))) }

// zero is the quantity.
var zero = resource.MustParse("0")

func TestMain(m *testing.M) { env.Main(m) }
