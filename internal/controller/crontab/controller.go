// Package crontab creates a Job at each time of a CronTab's schedule.
//
// A Job is created as soon as its time has come; all else - status, history, what Jobs
// report - waits until nothing is due, or for some seconds. See docs/crontab.md for what
// holds and why.
package crontab

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/graceful"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// Name is how this controller is called in logs, metrics, flags and events.
const Name = "crontab"

var kind = stablev1.SchemeGroupVersion.WithKind("CronTab")

const (
	// duePriority is the priority in the queue of a CronTab whose time has come.
	duePriority = 100

	// liveReadThreshold is how late a run is when the API server is asked whether it is still
	// ours to start: another process may have taken over in that time.
	liveReadThreshold = time.Minute
)

// Reconciler starts the runs of CronTabs.
type Reconciler struct {
	client      client.Client
	live        client.Reader
	status      *kube.StatusWriter
	events      *kube.Recorder
	clock       clock.Clock
	wakeups     *wakeups
	states      *stateStore
	slowCreates lane
	activeSince func() time.Time
}

// NewReconciler returns a Reconciler. It reads through c, which may be behind the
// API server and must have the indexes of Indexes; live is asked where that could do
// harm.
func NewReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, clock clock.Clock) *Reconciler {
	return &Reconciler{
		client:      c,
		live:        live,
		status:      kube.NewStatusWriter(kind.Kind, c, clock),
		events:      kube.NewRecorder(kind, recorder),
		clock:       clock,
		wakeups:     newWakeups(clock),
		states:      newStateStore(),
		slowCreates: make(lane, maxSlowCreates),
		activeSince: sync.OnceValue(clock.Now),
	}
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options) error {
	if err := kube.AddIndexes(mgr.GetFieldIndexer(), Indexes...); err != nil {
		return err
	}
	r := NewReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(Name), clock.RealClock{})
	err := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		Watches(&stablev1.CronTab{}, r.cronTabHandler()).
		Watches(&batchv1.Job{}, r.jobHandler()).
		WatchesRawSource(source.Func(r.enqueueDue)).
		WithOptions(options).
		Complete(tracing.Reconciler(Name, graceful.Reconciler(kube.LogVerdicts(reconcile.AsReconciler(mgr.GetClient(), r)))))
	if err != nil {
		return fmt.Errorf("build controller %s: %w", Name, err)
	}
	if err := mgr.Add(exporter{mgr.GetClient()}); err != nil {
		return fmt.Errorf("export the metrics of controller %s: %w", Name, err)
	}
	return nil
}

// enqueueDue adds CronTabs to the queue when their time has come.
func (r *Reconciler) enqueueDue(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go r.wakeups.run(ctx, func(due ...client.ObjectKey) { kube.Enqueue(queue, duePriority, due...) })
	return nil
}

// +kubebuilder:rbac:groups=stable.example.com,resources=crontabs,verbs=get;list;watch
// +kubebuilder:rbac:groups=stable.example.com,resources=crontabs/status,verbs=update
// +kubebuilder:rbac:groups=stable.example.com,resources=crontabs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile starts what is due, and tidies up if nothing is.
func (r *Reconciler) Reconcile(ctx context.Context, cronTab *stablev1.CronTab) (reconcile.Result, error) {
	if !cronTab.DeletionTimestamp.IsZero() {
		// The garbage collector deletes the Jobs.
		r.wakeups.set(client.ObjectKeyFromObject(cronTab), time.Time{})
		return reconcile.Result{}, nil
	}
	st := r.states.get(cronTab)
	st.applyLastWrite(cronTab)
	isFirst := !st.progressLoaded
	seen, err := r.observe(ctx, cronTab, st)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide(cronTab, seen, r.clock.Now())
	if plan.start != nil && (isFirst || plan.needsLiveRead(st.verifiedAt, r.wakeups.lastStall())) {
		key := client.ObjectKeyFromObject(cronTab)
		if cronTab, seen, err = r.observeLive(ctx, cronTab, seen, st); err != nil || cronTab == nil {
			// The backoff of the queue becomes longer than a run may wait.
			r.wakeups.set(key, plan.now.Add(maxRetryInterval))
			return reconcile.Result{}, err
		}
		plan = decide(cronTab, seen, r.clock.Now())
	}
	if plan.start != nil && st.slowCreate {
		if !r.slowCreates.enter() {
			r.wakeups.set(client.ObjectKeyFromObject(cronTab), plan.now.Add(slowRetryInterval))
			return reconcile.Result{}, nil
		}
		defer r.slowCreates.leave()
	}
	kube.Decided(ctx, plan.action())
	done, actErr := r.act(ctx, cronTab, st, seen, plan)
	if actErr == nil && plan.isRoutine() {
		// Others may be due as well: what there is to say can wait for the event of the Job.
		r.wakeups.set(client.ObjectKeyFromObject(cronTab), plan.wakeAt)
		return kube.Later(), nil
	}
	status := summarize(cronTab, seen, plan, done, actErr)
	return r.finish(ctx, cronTab, st, status, plan, done, actErr)
}

// needsLiveRead reports whether the run that is to be started may not be ours any more: it
// is very late, or this process stood still, since the API server confirmed what is
// known.
func (p plan) needsLiveRead(verified, stalled time.Time) bool {
	return verified.Before(stalled) || p.now.Sub(p.start.due) > liveReadThreshold && kube.Elapsed(verified, p.now) > liveReadThreshold
}

// action says in a word for the log what act does first.
func (p plan) action() string {
	switch {
	case p.start != nil:
		return "start"
	case p.blocked != nil && len(p.replace) > 0:
		return "replace"
	case p.blocked != nil:
		return "blocked"
	case len(p.prune)+len(p.release) > 0:
		return "tidy"
	default:
		return "wait"
	}
}

// isRoutine reports whether all there is to do is to start a run at its time: nobody has to
// be told of anything, and nothing is lost if this process ends before the status says so.
func (p plan) isRoutine() bool {
	return p.start != nil && !p.cleanupOverdue && !p.start.manual && p.now.Sub(p.start.due) <= maxLateness &&
		p.queuedCount <= 1 && len(p.progress.queued) <= 1 && p.missed == 0 && p.blocked == nil && !p.overflow && !p.scheduleChanged
}

// observeLive reads the CronTab from the API server. Without an error, it returns no
// CronTab if it is gone. If somebody else has written its status, what this process
// remembers is void.
func (r *Reconciler) observeLive(ctx context.Context, cached *stablev1.CronTab, seen observation, st *state) (*stablev1.CronTab, observation, error) {
	current := &stablev1.CronTab{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(cached), current); err != nil {
		return nil, seen, kube.Named(client.IgnoreNotFound(err), "get", "CronTab", cached.Namespace, cached.Name)
	}
	if current.UID != cached.UID || !current.DeletionTimestamp.IsZero() {
		return nil, seen, nil
	}
	if !progressFromStatus(&current.Status).equal(seen.recorded) {
		st.progressLoaded = false
	}
	seen, err := r.observe(ctx, current, st)
	st.verifiedAt = r.clock.Now()
	return current, seen, err
}

// jobOwner finds Jobs by the UID of the CronTab that controls them.
const jobOwner = "crontab.controller"

// Indexes are the indexes that a Reconciler reads by.
var Indexes = []kube.Index{
	{Object: &batchv1.Job{}, Field: jobOwner, Keys: kube.ByController(kind.GroupKind())},
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// cronTabHandler wakes CronTabs that are new or changed, and forgets those that are gone.
func (r *Reconciler) cronTabHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			kube.Enqueue(q, 0, client.ObjectKeyFromObject(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			key := client.ObjectKeyFromObject(e.ObjectNew)
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.forget(e.ObjectOld)
			}
			priority := 0
			if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() &&
				e.ObjectOld.GetAnnotations()[stablev1.RunRequestedAtAnnotation] == e.ObjectNew.GetAnnotations()[stablev1.RunRequestedAtAnnotation] {
				// Its status, most likely: what waited for that is housekeeping.
				priority = kube.LowPriority
			}
			kube.Enqueue(q, priority, key)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { r.forget(e.Object) },
	}
}

// forget drops all that is known of a CronTab that is gone.
func (r *Reconciler) forget(cronTab client.Object) {
	key := client.ObjectKeyFromObject(cronTab)
	if r.states.delete(key, cronTab.GetUID()) {
		r.wakeups.set(key, time.Time{})
	}
}

// jobHandler wakes the CronTab that controls a Job, and the one that waits for the name of
// a Job to become free.
func (r *Reconciler) jobHandler() handler.EventHandler {
	wake := kube.WatchChildren(kind.GroupKind(), func(_ context.Context, job client.Object) []client.ObjectKey {
		if kube.IsControlled(job, kind.GroupKind()) {
			return nil
		}
		return cronTabForJobName(job)
	})
	met := func(job client.Object) {
		if ref := metav1.GetControllerOfNoCopy(job); ref != nil {
			if st := r.states.lookup(client.ObjectKey{Namespace: job.GetNamespace(), Name: ref.Name}, ref.UID); st != nil {
				st.observeCreation(job.GetName())
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			met(e.Object)
			wake.Create(ctx, e, q)
		},
		UpdateFunc: wake.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			met(e.Object)
			wake.Delete(ctx, e, q)
		},
	}
}

// cronTabForJobName returns the CronTab whose run a Job would be by its name.
func cronTabForJobName(job client.Object) []client.ObjectKey {
	end := strings.LastIndexByte(job.GetName(), '-')
	if end < 1 {
		return nil
	}
	if _, err := strconv.ParseUint(job.GetName()[end+1:], 10, 63); err != nil {
		return nil
	}
	return []client.ObjectKey{{Namespace: job.GetNamespace(), Name: job.GetName()[:end]}}
}

// cachedTemplateAnnotation is the annotation of a CronTab in the cache that holds its jobTemplate
// as JSON. It never reaches the API: statuses are written without metadata.
const cachedTemplateAnnotation = "crontab.stable.example.com/cached-job-template"

// Cache makes a manager's cache keep of CronTabs and Jobs only what this controller
// reads, in little memory. Other controllers of the manager see Jobs so, too.
func Cache(options *cache.Options) {
	kube.Transform(options, &batchv1.Job{}, stripJob)
	kube.Transform(options, &stablev1.CronTab{}, kube.DropOthersNotes)
	kube.Transform(options, &stablev1.CronTab{}, stripCronTab)
}

// stripCronTab keeps the template as text: decoded it takes many times the memory.
func stripCronTab(object any) (any, error) {
	full, ok := object.(*stablev1.CronTab)
	if !ok {
		return object, nil
	}
	slim := &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{
			Name:              full.Name,
			Namespace:         full.Namespace,
			UID:               full.UID,
			ResourceVersion:   full.ResourceVersion,
			Generation:        full.Generation,
			CreationTimestamp: full.CreationTimestamp,
			DeletionTimestamp: full.DeletionTimestamp,
		},
		Spec:   full.Spec,
		Status: full.Status,
	}
	slim.Spec.JobTemplate = nil
	annotations := map[string]string{}
	if text, found := full.Annotations[stablev1.RunRequestedAtAnnotation]; found {
		annotations[stablev1.RunRequestedAtAnnotation] = text
	}
	if full.Spec.JobTemplate != nil {
		raw, err := json.Marshal(full.Spec.JobTemplate)
		if err != nil {
			return nil, fmt.Errorf("reduce CronTab %s/%s: %w", full.Namespace, full.Name, err)
		}
		annotations[cachedTemplateAnnotation] = string(raw)
	}
	if len(annotations) > 0 {
		slim.Annotations = annotations
	}
	return slim, nil
}

// stripJob returns what this controller reads of a Job. Of one that no CronTab controls
// that is the name, and whose it is.
func stripJob(object any) (any, error) {
	full, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	slim := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name:              full.Name,
		Namespace:         full.Namespace,
		UID:               full.UID,
		ResourceVersion:   full.ResourceVersion,
		CreationTimestamp: full.CreationTimestamp,
		DeletionTimestamp: full.DeletionTimestamp,
		OwnerReferences:   full.OwnerReferences,
	}}
	if !kube.IsControlled(full, kind.GroupKind()) {
		return slim, nil
	}
	for _, name := range []string{batchv1.CronJobScheduledTimestampAnnotation, stablev1.RunRequestedAtAnnotation, stablev1.TTLAnnotation} {
		if value, found := full.Annotations[name]; found {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, name, value)
		}
	}
	slim.Status.StartTime = full.Status.StartTime
	slim.Status.CompletionTime = full.Status.CompletionTime
	for _, condition := range full.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			slim.Status.Conditions = append(slim.Status.Conditions, batchv1.JobCondition{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			})
		}
	}
	return slim, nil
}
