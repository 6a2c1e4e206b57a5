// Package disk reconciles VirtualDisks with the disks of a driver of VirtualMachines.
//
// The driver alone decides which machine has a disk, because only one manager at a time has its state; this controller
// creates, grows and deletes disks, and reports their state.
package disk

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics and events.
const Name = "virtualdisk"

var kind = v1alpha1.SchemeGroupVersion.WithKind("VirtualDisk")

// Store has the drivers that keep disks.
type Store interface {
	// DiskStore returns a driver, and its host: the named one, or the first one that keeps disks. The error is a
	// backend.ErrMissing if the manager has no such driver, or a backend.ErrUnavailable if it cannot be opened now.
	DiskStore(driver string) (backend.DiskStore, v1alpha1.Host, error)
	// WatchDisks sets the function to call with a disk that has changed.
	WatchDisks(notify func(backend.DiskIdentity))
}

// Reconciler reconciles VirtualDisks.
type Reconciler struct {
	kube.Base
	store   Store
	cluster *kube.ClusterIdentity
}

func newReconciler(base kube.Base, store Store) *Reconciler {
	return &Reconciler{base, store, kube.NewClusterIdentity(base.Live)}
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options, store Store) error {
	r := newReconciler(kube.BaseOf(mgr, kind, Name), store)
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VirtualDisk{}).
		WatchesRawSource(external.Changes(store.WatchDisks, func(id backend.DiskIdentity) client.ObjectKey {
			return client.ObjectKey{Namespace: id.Namespace, Name: id.Name}
		}))
	return setup.Controller(mgr, Name, options, watches, r)
}

// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualdisks,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualdisks/status,verbs=update
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachineimages,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile creates or grows a disk, or removes it when no machine has it.
func (r *Reconciler) Reconcile(ctx context.Context, disk *v1alpha1.VirtualDisk) (reconcile.Result, error) {
	return external.Reconcile[*v1alpha1.VirtualDisk, observation](ctx, r.Base, r, disk)
}

// observation is the state that a reconcile is based on.
type observation struct {
	id backend.DiskIdentity
	// store is nil if there is none because of err.
	store backend.DiskStore
	host  v1alpha1.Host
	// elsewhere means that another host has the disk.
	elsewhere bool
	// state is nil if the store has neither the disk nor an attempt to create it.
	state *backend.DiskState
	err   error
}

// Observe implements external.Kind: it asks the driver for the state of a disk. A returned error is one of the API.
func (r *Reconciler) Observe(ctx context.Context, disk *v1alpha1.VirtualDisk) (observation, error) {
	var seen observation
	cluster, err := r.cluster.UID(ctx)
	if err != nil {
		return seen, err
	}
	seen.id = backend.DiskIdentity{UID: disk.UID, Namespace: disk.Namespace, Name: disk.Name, Cluster: cluster}
	driver := ""
	if disk.Status.Host != nil {
		driver = disk.Status.Host.Driver
	}
	if seen.store, seen.host, seen.err = r.store.DiskStore(driver); seen.err != nil {
		seen.store = nil
		return seen, nil
	}
	recorded := disk.Status.Host
	if recorded != nil && recorded.ID != seen.host.ID && disk.Annotations[v1alpha1.AnnotationForgetHost] != recorded.ID {
		seen.elsewhere = true
		return seen, nil
	}
	ctx, cancel := external.Call(ctx)
	defer cancel()
	seen.state, seen.err = external.Found(seen.store.ObserveDisk(ctx, seen.id))
	return seen, nil
}
