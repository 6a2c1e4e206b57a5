// Package crontab creates a Job at each time of a CronTab's schedule.
//
// A Job is created as soon as its time has come; all else - status, history, what Jobs
// report - waits until nothing is due, or for some seconds. See docs/crontab.md for what
// holds and why.
package crontab

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
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
	// firePriority is the priority in the queue of a CronTab whose time has come.
	firePriority = 100

	// doubtAfter is how late a run is when the API server is asked whether it is still
	// ours to start: another process may have taken over in that time.
	doubtAfter = time.Minute
)

// Reconciler starts the runs of CronTabs.
type Reconciler struct {
	client client.Client
	live   client.Reader
	status *kube.StatusWriter
	events *kube.Recorder
	clock  clock.Clock
	alarm  *alarm
	known  *memories
	slow   lane
	since  func() time.Time
}

// NewReconciler returns a Reconciler. It reads through c, which may be behind the
// API server and must have the indexes of Indexes; live is asked where that could do
// harm.
func NewReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, clock clock.Clock) *Reconciler {
	return &Reconciler{
		client: c,
		live:   live,
		status: kube.NewStatusWriter(kind.Kind, c, clock),
		events: kube.NewRecorder(kind, recorder),
		clock:  clock,
		alarm:  newAlarm(clock),
		known:  newMemories(),
		slow:   make(lane, slowLane),
		since:  sync.OnceValue(clock.Now),
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
		Watches(&stablev1.CronTab{}, r.watchCronTabs()).
		Watches(&batchv1.Job{}, r.watchJobs()).
		WatchesRawSource(source.Func(r.ring)).
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

// ring adds CronTabs to the queue when their time has come.
func (r *Reconciler) ring(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go r.alarm.run(ctx, func(due ...client.ObjectKey) { kube.Enqueue(queue, firePriority, due...) })
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
		r.alarm.set(client.ObjectKeyFromObject(cronTab), time.Time{})
		return reconcile.Result{}, nil
	}
	m := r.known.of(cronTab)
	m.catchUp(cronTab)
	isFirst := !m.loaded
	seen, err := r.observe(ctx, cronTab, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide(cronTab, seen, r.clock.Now())
	if plan.start != nil && (isFirst || plan.isDoubtful(m.verified, r.alarm.stalledAt())) {
		key := client.ObjectKeyFromObject(cronTab)
		if cronTab, seen, err = r.observeLive(ctx, cronTab, seen, m); err != nil || cronTab == nil {
			// The backoff of the queue becomes longer than a run may wait.
			r.alarm.set(key, plan.now.Add(longestRetry))
			return reconcile.Result{}, err
		}
		plan = decide(cronTab, seen, r.clock.Now())
	}
	if plan.start != nil && m.slow {
		if !r.slow.enter() {
			r.alarm.set(client.ObjectKeyFromObject(cronTab), plan.now.Add(slowPause))
			return reconcile.Result{}, nil
		}
		defer r.slow.leave()
	}
	kube.Decided(ctx, plan.verdict())
	done, actErr := r.act(ctx, cronTab, m, seen, plan)
	if actErr == nil && plan.isRoutine() {
		// Others may be due as well: what there is to say can wait for the event of the Job.
		r.alarm.set(client.ObjectKeyFromObject(cronTab), plan.wake)
		return kube.Later(), nil
	}
	status := summarize(cronTab, seen, plan, done, actErr)
	return r.finish(ctx, cronTab, m, status, plan, done, actErr)
}

// isDoubtful reports whether the run that is to be started may not be ours any more: it
// is very late, or this process stood still, since the API server confirmed what is
// known.
func (p plan) isDoubtful(verified, stalled time.Time) bool {
	return verified.Before(stalled) || p.now.Sub(p.start.due) > doubtAfter && kube.Elapsed(verified, p.now) > doubtAfter
}

// verdict says in a word for the log what act does first.
func (p plan) verdict() string {
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
	return p.start != nil && !p.overdue && !p.start.manual && p.now.Sub(p.start.due) <= onTime &&
		p.queued <= 1 && len(p.progress.waiting) <= 1 && p.missed == 0 && p.blocked == nil && !p.overflow && !p.restarted
}

// observeLive reads the CronTab from the API server. Without an error, it returns no
// CronTab if it is gone. If somebody else has written its status, what this process
// remembers is void.
func (r *Reconciler) observeLive(ctx context.Context, cached *stablev1.CronTab, seen observation, m *memory) (*stablev1.CronTab, observation, error) {
	current := &stablev1.CronTab{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(cached), current); err != nil {
		return nil, seen, kube.Named(client.IgnoreNotFound(err), "get", "CronTab", cached.Namespace, cached.Name)
	}
	if current.UID != cached.UID || !current.DeletionTimestamp.IsZero() {
		return nil, seen, nil
	}
	if !progressOf(&current.Status).equals(seen.recorded) {
		m.loaded = false
	}
	seen, err := r.observe(ctx, current, m)
	m.verified = r.clock.Now()
	return current, seen, err
}
