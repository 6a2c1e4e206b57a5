// Package store copies each ClusterSnapshot to a store off the host, once, and reads it back where its files are missing.
package store

import (
	"context"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/objectstore"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics and events.
const Name = "clustersnapshot-store"

// workers is the number of snapshots that are copied at the same time. Each needs some 16 MiB of memory.
const workers = 2

var kind = v1alpha1.SchemeGroupVersion.WithKind("ClusterSnapshot")

// Files are the files of snapshots on this host.
type Files interface {
	// OpenSnapshot returns the record and the data of a complete snapshot. The data is nil if there is none.
	OpenSnapshot(uid types.UID) (record []byte, data *os.File, err error)
	// AddSnapshot adds a snapshot with a record of OpenSnapshot. The function writes its data; if it fails, nothing is added.
	AddSnapshot(uid types.UID, record []byte, write func(io.Writer) error) error
	// RemoveSnapshot deletes the files of a snapshot. It is not an error if there are none.
	RemoveSnapshot(uid types.UID) error
}

// Reconciler reconciles the copies of ClusterSnapshots.
type Reconciler struct {
	kube.Base
	files Files
	// store is nil if the manager has none.
	store objectstore.Store
}

// Add adds the controller to a manager. It has workers of its own: a slow store does not delay the snapshots themselves.
func Add(mgr ctrl.Manager, options controller.Options, files Files, store objectstore.Store) error {
	options.MaxConcurrentReconciles = workers
	r := &Reconciler{kube.BaseOf(mgr, kind, Name), files, store}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ClusterSnapshot{})
	return setup.Controller(mgr, Name, options, watches, r)
}

// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clustersnapshots,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clustersnapshots/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile copies a snapshot to the store, or from there, and deletes the copy when the ClusterSnapshot is deleted.
func (r *Reconciler) Reconcile(ctx context.Context, s *v1alpha1.ClusterSnapshot) (reconcile.Result, error) {
	seen := r.observe(s)
	plan := decide(s, seen, r.Clock.Now())
	kube.LogAction(ctx, plan.action)
	if plan.action == ignore {
		return reconcile.Result{}, nil
	}
	actErr := r.act(ctx, s, plan)
	if actErr == nil && (plan.action == remove || plan.action == claim) {
		return reconcile.Result{}, nil // the object is gone, or its event triggers the next reconcile
	}
	return r.finish(ctx, s, seen, plan, actErr)
}

// observation is the state that a reconcile is based on. The store is not asked: it may be far away, and what was written is in the
// status.
type observation struct {
	// present means that this host has the files.
	present bool
	// err is why they cannot be read.
	err error
	// hasStore means that the manager has a store.
	hasStore bool
	// location is that of the copy in the store.
	location string
}

func (r *Reconciler) observe(s *v1alpha1.ClusterSnapshot) observation {
	seen := observation{hasStore: r.store != nil}
	if seen.hasStore {
		seen.location = r.store.Location(nameOf(s))
	}
	_, data, err := r.files.OpenSnapshot(s.UID)
	seen.present, seen.err = data != nil, err
	if data != nil {
		_ = data.Close() // it was not written
	}
	return seen
}

// copyTimeout limits copying a snapshot. The largest database of etcd has 8 GiB.
const copyTimeout = time.Hour
