// Package crontab creates a Job at each scheduled time of a CronTab.
//
// Creating a due Job has priority. Status, history and events from Jobs wait until nothing is due,
// or for a few seconds. A run of a CronTab is in controller.go, observe.go, decide.go, act.go and
// status.go; what follows it, in cleanup.go and pods.go. See docs/crontab.md for the guarantees and docs/internals/crontab.md for the reasons.
package crontab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unique"

	"golang.org/x/sync/semaphore"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/controller/crontab/ping"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics, flags and events.
const Name = "crontab"

var kind = stablev1.SchemeGroupVersion.WithKind("CronTab")

// duePriority is the queue priority of a CronTab with a due run, and latePriority that of one whose run is late.
const duePriority, latePriority = 100, 50

// Reconciler starts the runs of CronTabs.
type Reconciler struct {
	kube.Base
	wakeups     *wakeups
	states      *stateStore
	slowCreates *semaphore.Weighted
	activeSince func() time.Time
	stuckAfter  time.Duration
	ping        func(...*ping.Ping)
}

// NewReconciler returns a Reconciler. The cache of its client needs the indexes of Indexes. It calls ping with the pings to send;
// that must not block.
func NewReconciler(base kube.Base, ping func(...*ping.Ping)) *Reconciler {
	return &Reconciler{
		Base:        base,
		wakeups:     newWakeups(base.Clock),
		states:      newStateStore(),
		slowCreates: semaphore.NewWeighted(maxSlowCreates),
		activeSince: sync.OnceValue(base.Clock.Now),
		stuckAfter:  stuckAfter,
		ping:        ping,
	}
}

// Add adds the controller to a manager. pingNetworks are those that pings can reach besides the public Internet.
func Add(mgr ctrl.Manager, options controller.Options, pingNetworks []netip.Prefix) error {
	if err := kube.AddIndexes(mgr.GetFieldIndexer(), Indexes...); err != nil {
		return err
	}
	base := kube.BaseOf(mgr, kind, Name)
	sender := ping.NewSender(base.Live, base.Events, pingNetworks)
	r := NewReconciler(base, sender.Add)
	watches := ctrl.NewControllerManagedBy(mgr).
		Watches(&stablev1.CronTab{}, r.cronTabHandler()).
		Watches(&batchv1.Job{}, r.jobHandler()).
		WatchesRawSource(source.Func(r.enqueueDue))
	if err := setup.Controller(mgr, Name, options, watches, r); err != nil {
		return err
	}
	if err := mgr.Add(exporter{mgr.GetClient()}); err != nil {
		return fmt.Errorf("register the metrics of controller %s: %w", Name, err)
	}
	return mgr.Add(sender)
}

// enqueueDue starts a goroutine that adds CronTabs to the queue when they are due.
func (r *Reconciler) enqueueDue(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go r.wakeups.run(ctx, func(due ...client.ObjectKey) { kube.Enqueue(queue, duePriority, due...) })
	return nil
}

// +kubebuilder:rbac:groups=stable.example.com,resources=crontabs,verbs=get;list;watch
// +kubebuilder:rbac:groups=stable.example.com,resources=crontabs/status,verbs=update
// +kubebuilder:rbac:groups=stable.example.com,resources=crontabs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile starts the run that is due; if none is, it cleans up and updates the status.
func (r *Reconciler) Reconcile(ctx context.Context, cronTab *stablev1.CronTab) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(cronTab)
	if !cronTab.DeletionTimestamp.IsZero() {
		// The garbage collector deletes the Jobs.
		r.wakeups.set(key, time.Time{})
		return reconcile.Result{}, nil
	}
	st := r.states.get(cronTab)
	cronTab, seen, plan, err := r.plan(ctx, cronTab, st)
	switch {
	case err != nil || cronTab == nil:
		return kube.ResultForTransient(err)
	case plan.postponed:
		st.postponed = true
		r.wakeups.set(key, plan.wakeAt)
		return reconcile.Result{RequeueAfter: time.Millisecond, Priority: ptr.To(latePriority)}, nil
	}
	st.blocked.Store(plan.blocked != nil)
	release, ok := r.reserve(st, plan)
	if !ok {
		r.wakeups.set(key, plan.now.Add(slowRetryInterval))
		return reconcile.Result{}, nil
	}
	defer release()
	kube.LogAction(ctx, plan.action())
	done, actErr := r.act(ctx, cronTab, st, seen, plan)
	if actErr == nil && plan.isRoutine() {
		// Other CronTabs may be due too. The status can wait for the event of the Job.
		r.wakeups.set(key, kube.Earlier(plan.wakeAt, plan.now.Add(maxPostponement)))
		return kube.Later(), nil
	}
	r.observePods(ctx, cronTab, st, &seen, plan.now) // after the due run, because it asks the API server
	return r.finish(ctx, cronTab, st, seen, plan, done, actErr)
}

// plan observes a CronTab and decides what to do; if the API server has to confirm the progress, a second time with the CronTab
// that it has, which is nil if it is gone.
func (r *Reconciler) plan(ctx context.Context, cronTab *stablev1.CronTab, st *state) (*stablev1.CronTab, observation, plan, error) {
	cached := progressFromStatus(&cronTab.Status)
	st.applyLastWrite(cronTab)
	seen, err := r.observe(ctx, cronTab, cached, st)
	if err != nil {
		return cronTab, seen, plan{}, err
	}
	p := decide(cronTab, seen, r.Clock.Now())
	if p.needsLiveRead {
		key := client.ObjectKeyFromObject(cronTab)
		if cronTab, seen, err = r.observeLive(ctx, cronTab, seen, st); err != nil || cronTab == nil {
			// The backoff of the queue may grow beyond the time a run may wait.
			r.wakeups.set(key, p.now.Add(maxRetryInterval))
			return cronTab, seen, p, err
		}
		p = decide(cronTab, seen, r.Clock.Now())
	}
	if p.postponed {
		return cronTab, seen, p, nil
	}
	return cronTab, seen, p, r.confirm(ctx, p.confirm)
}

// reserve reserves one of the few workers for CronTabs with slow creations, if the plan starts a run of such a CronTab. It returns
// false if all of them are busy.
func (r *Reconciler) reserve(st *state, p plan) (release func(), ok bool) {
	if p.start == nil || !st.slowCreate {
		return func() {}, true
	}
	return func() { r.slowCreates.Release(1) }, r.slowCreates.TryAcquire(1)
}

// jobOwner indexes Jobs by the UID of the CronTab that controls them.
const jobOwner = "crontab.controller"

// Indexes are the cache indexes that a Reconciler needs.
var Indexes = []kube.Index{
	{Object: &batchv1.Job{}, Field: jobOwner, Keys: kube.ByController(kind.GroupKind())},
	{Object: &stablev1.CronTab{}, Field: afterIndex, Keys: afterOf},
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// cronTabHandler enqueues new and changed CronTabs and drops the state of deleted ones.
func (r *Reconciler) cronTabHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			kube.Enqueue(q, duePriority, client.ObjectKeyFromObject(e.Object)) // for all that is known
			kube.Enqueue(q, kube.LowPriority, r.relatives(ctx, e.Object)...)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			key := client.ObjectKeyFromObject(e.ObjectNew)
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.forget(e.ObjectOld)
			}
			priority := duePriority // perhaps of a run on demand
			if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() {
				// Most likely the status changed. Only cleanup waits for that.
				priority = kube.LowPriority
			}
			kube.Enqueue(q, priority, key)
			kube.Enqueue(q, kube.LowPriority, r.relatives(ctx, e.ObjectNew)...)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.forget(e.Object)
			kube.Enqueue(q, kube.LowPriority, r.relatives(ctx, e.Object)...)
		},
	}
}

// forget drops all state of a deleted CronTab.
func (r *Reconciler) forget(cronTab client.Object) {
	key := client.ObjectKeyFromObject(cronTab)
	if r.states.delete(key, cronTab.GetUID()) {
		r.wakeups.set(key, time.Time{})
	}
}

// jobHandler enqueues the CronTab that controls a Job, those that run after it when the Job has ended, and the one that waits for the
// name of a Job to become free.
func (r *Reconciler) jobHandler() handler.EventHandler {
	wake := kube.WatchChildren(kind.GroupKind(), func(_ context.Context, job client.Object) []client.ObjectKey {
		if kube.IsControlled(job, kind.GroupKind()) {
			return nil
		}
		return cronTabForJobName(job)
	})
	stateOf := func(job client.Object) (*state, client.ObjectKey) {
		ref := metav1.GetControllerOfNoCopy(job)
		if ref == nil {
			return nil, client.ObjectKey{}
		}
		key := client.ObjectKey{Namespace: job.GetNamespace(), Name: ref.Name}
		return r.states.lookup(key, ref.UID), key
	}
	met := func(job client.Object) {
		if st, _ := stateOf(job); st != nil {
			st.observeCreation(job.GetName())
		}
	}
	// The run that waits for this Job would otherwise wait until the runs of all others have started, which may be never.
	unblock := func(job client.Object, q queue) {
		if st, key := stateOf(job); st != nil && st.blocked.Load() {
			kube.Enqueue(q, latePriority, key)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			met(e.Object)
			wake.Create(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			wake.Update(ctx, e, q)
			if condition, _ := crontab.Ended(e.ObjectNew.(*batchv1.Job)); condition != nil {
				unblock(e.ObjectNew, q)
				kube.Enqueue(q, 0, r.followers(ctx, e.ObjectNew)...)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			met(e.Object)
			unblock(e.Object, q)
			wake.Delete(ctx, e, q)
		},
	}
}

// cronTabForJobName returns the CronTab to which a Job belongs by its name.
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

// cachedTemplate returns the jobTemplate of a cached CronTab as JSON. The cache has it in a field that nothing reads, and
// that status updates do not write; a map would take more memory than all other metadata.
func cachedTemplate(cronTab *stablev1.CronTab) string { return cronTab.GenerateName }

// Cache strips CronTabs and Jobs in the cache of a manager to the fields that this controller
// reads, to save memory. All controllers of the manager see the stripped Jobs.
func Cache(options *cache.Options) {
	kube.Transform(options, &batchv1.Job{}, stripJob)
	kube.Transform(options, &stablev1.CronTab{}, kube.StripManagedFields)
	kube.Transform(options, &stablev1.CronTab{}, stripCronTab)
}

// stripCronTab keeps the template as JSON, because a decoded one takes many times the memory.
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
	if full.Spec.JobTemplate != nil {
		raw, err := json.Marshal(full.Spec.JobTemplate)
		if err != nil {
			return nil, fmt.Errorf("strip CronTab %s/%s: %w", full.Namespace, full.Name, err)
		}
		slim.GenerateName = string(raw)
	}
	share(&slim.Namespace)
	for i := range slim.Status.Conditions {
		condition := &slim.Status.Conditions[i]
		share(&condition.Type, (*string)(&condition.Status), &condition.Reason, &condition.Message)
	}
	return slim, nil
}

// share replaces texts by copies that equal texts share.
func share(texts ...*string) {
	for _, text := range texts {
		*text = unique.Make(*text).Value()
	}
}

// stripJob keeps the fields that this controller reads. For a Job that no CronTab controls, these
// are name and owner.
func stripJob(object any) (any, error) {
	full, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	slim := &batchv1.Job{ObjectMeta: kube.Identity(full)}
	if !kube.IsControlled(full, kind.GroupKind()) {
		return slim, nil
	}
	for _, name := range []string{batchv1.CronJobScheduledTimestampAnnotation, stablev1.RunRequestedAtAnnotation, stablev1.BackfillRequestedAtAnnotation, stablev1.FollowsAnnotation, stablev1.TTLAnnotation} {
		if value, found := full.Annotations[name]; found {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, name, value)
		}
	}
	if full.DeletionTimestamp != nil {
		slim.Finalizers = full.Finalizers
	}
	slim.Spec.Suspend = full.Spec.Suspend
	slim.Status.StartTime = full.Status.StartTime
	slim.Status.Ready = full.Status.Ready
	slim.Status.CompletionTime = full.Status.CompletionTime
	for _, condition := range full.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			slim.Status.Conditions = append(slim.Status.Conditions, batchv1.JobCondition{
				Type: condition.Type, Status: condition.Status, Reason: condition.Reason, LastTransitionTime: condition.LastTransitionTime,
			})
		}
	}
	return slim, nil
}
