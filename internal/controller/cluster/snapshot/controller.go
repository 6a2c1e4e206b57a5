// Package snapshot takes, keeps and removes the snapshot of each ClusterSnapshot.
package snapshot

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics and events.
const Name = "clustersnapshot"

var kind = v1alpha1.SchemeGroupVersion.WithKind("ClusterSnapshot")

// ErrNotRunning means that the cluster does not run, so that its snapshot is taken later.
var ErrNotRunning = errors.New("the cluster does not run")

// Store takes and keeps snapshots. Its methods may be repeated after a crash of the manager.
type Store interface {
	// FindSnapshot returns a complete snapshot; nil if there is none.
	FindSnapshot(uid types.UID) (*Snapshot, error)
	// TakeSnapshot takes a snapshot of a cluster and returns when it is on the disk. It returns ErrNotRunning if the cluster does
	// not run.
	TakeSnapshot(ctx context.Context, uid types.UID, of Source) (*Snapshot, error)
	// RemoveSnapshot deletes the files of a snapshot. It is not an error if there are none.
	RemoveSnapshot(uid types.UID) error
}

// Source is the Cluster that a snapshot is taken of.
type Source struct {
	Name string
	UID  types.UID
	Spec v1alpha1.ClusterSpec
}

// Snapshot describes a complete snapshot.
type Snapshot struct {
	// Cluster and ClusterUID identify the Cluster that it was taken of.
	Cluster    string    `json:"cluster"`
	ClusterUID types.UID `json:"clusterUID"`
	// Version is the Kubernetes version of the cluster at that time.
	Version string `json:"version"`
	// Revision is the one of etcd.
	Revision int64 `json:"revision"`
	// Size is the size of the snapshot in bytes.
	Size int64 `json:"size"`
	// TakenAt is the time of the snapshot.
	TakenAt time.Time `json:"takenAt"`
}

// Reconciler reconciles ClusterSnapshots.
type Reconciler struct {
	kube.Base
	store Store
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options, store Store) error {
	r := &Reconciler{kube.BaseOf(mgr, kind, Name), store}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ClusterSnapshot{}).
		Watches(&v1alpha1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor))
	if err := setup.Controller(mgr, Name, options, watches, r); err != nil {
		return err
	}
	register(mgr.GetClient())
	return nil
}

// waitingFor returns the ClusterSnapshots of a Cluster that are not taken yet.
func (r *Reconciler) waitingFor(ctx context.Context, cluster client.Object) []reconcile.Request {
	var snapshots v1alpha1.ClusterSnapshotList
	if err := r.Client.List(ctx, &snapshots); err != nil {
		return nil // they look again after a pause
	}
	var requests []reconcile.Request
	for i := range snapshots.Items {
		if s := &snapshots.Items[i]; s.Spec.ClusterName == cluster.GetName() && s.Status.TakenAt == nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: s.Name}})
		}
	}
	return requests
}

// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clustersnapshots,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clustersnapshots/status,verbs=update
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes a snapshot once, and removes it when the ClusterSnapshot is deleted.
func (r *Reconciler) Reconcile(ctx context.Context, s *v1alpha1.ClusterSnapshot) (reconcile.Result, error) {
	seen, err := r.observe(ctx, s)
	if err != nil {
		return kube.ResultForTransient(err)
	}
	plan := decide(s, seen, r.Clock.Now())
	kube.LogAction(ctx, plan.action)
	if plan.action == released {
		return reconcile.Result{}, nil
	}
	actErr := r.act(ctx, s, &seen, plan)
	if actErr == nil && (plan.action == remove || plan.action == claim) {
		return reconcile.Result{}, nil // the object is gone, or its event triggers the next reconcile
	}
	return r.finish(ctx, s, summarize(s, seen, plan, actErr), plan, actErr)
}

// observation is the state that a reconcile is based on.
type observation struct {
	// cluster is the Cluster of spec.clusterName; nil if it does not exist.
	cluster *v1alpha1.Cluster
	// taken is the snapshot; nil if it is not taken, or lost.
	taken *Snapshot
	// err is the error of the store.
	err error
}

func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.ClusterSnapshot) (observation, error) {
	var seen observation
	if seen.taken, seen.err = r.store.FindSnapshot(s.UID); seen.taken != nil {
		return seen, nil
	}
	var cluster v1alpha1.Cluster
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: s.Spec.ClusterName}, &cluster); {
	case err == nil:
		seen.cluster = &cluster
	case client.IgnoreNotFound(err) != nil:
		return seen, kube.Named(err, "get", "Cluster", "", s.Spec.ClusterName)
	}
	return seen, nil
}

// isRunning reports whether a cluster runs, as far as the controller of Clusters has seen its present spec. Whether it is to run is decided
// there, and is in the condition. A deletion changes the generation, too.
func isRunning(c *v1alpha1.Cluster) bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.ObservedGeneration == c.Generation && ready.Status == metav1.ConditionTrue && ready.Reason != v1alpha1.ReasonStopped
}
