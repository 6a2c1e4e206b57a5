// Package snapshot takes, keeps and removes the snapshot of each VirtualMachineSnapshot.
package snapshot

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
const Name = "virtualmachinesnapshot"

var kind = v1alpha1.SchemeGroupVersion.WithKind("VirtualMachineSnapshot")

// Store has the drivers that take snapshots.
type Store interface {
	// SnapshotStore returns the driver of that name, and its host. The error is a backend.ErrMissing if the manager has no
	// such driver or it takes no snapshots, or a backend.ErrUnavailable if it cannot be opened now.
	SnapshotStore(driver string) (backend.SnapshotStore, v1alpha1.Host, error)
	// WatchSnapshots sets the function to call with a snapshot that has changed.
	WatchSnapshots(notify func(backend.SnapshotIdentity))
}

// Reconciler reconciles VirtualMachineSnapshots.
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
		For(&v1alpha1.VirtualMachineSnapshot{}).
		WatchesRawSource(external.Changes(store.WatchSnapshots, func(id backend.SnapshotIdentity) client.ObjectKey {
			return client.ObjectKey{Namespace: id.Namespace, Name: id.Name}
		}))
	return setup.Controller(mgr, Name, options, watches, r)
}

// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachinesnapshots,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachinesnapshots/status,verbs=update
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes a snapshot once, and removes it when the VirtualMachineSnapshot is deleted.
func (r *Reconciler) Reconcile(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot) (reconcile.Result, error) {
	return external.Reconcile[*v1alpha1.VirtualMachineSnapshot, observation](ctx, r.Base, r, s)
}

// observation is the state that a reconcile is based on.
type observation struct {
	id backend.SnapshotIdentity
	// machine is the VirtualMachine of spec.virtualMachineName; nil if it does not exist, or is not needed any more.
	machine *v1alpha1.VirtualMachine
	// of identifies it to the driver.
	of backend.Identity
	// store is nil if it is not known which one it is, or if there is none because of err.
	store backend.SnapshotStore
	host  v1alpha1.Host
	// elsewhere means that another host has the snapshot or the machine.
	elsewhere *v1alpha1.Host
	// state is nil if the store has neither the snapshot nor an attempt to take it.
	state *backend.SnapshotState
	err   error
}

// Observe implements external.Kind: it asks the driver for the state of a snapshot. A returned error is one of the API.
func (r *Reconciler) Observe(ctx context.Context, s *v1alpha1.VirtualMachineSnapshot) (observation, error) {
	seen := observation{id: backend.SnapshotIdentity{UID: s.UID, Namespace: s.Namespace, Name: s.Name}}
	recorded := s.Status.Host
	if s.Status.TakenAt == nil && s.DeletionTimestamp.IsZero() {
		cluster, err := r.cluster.UID(ctx)
		if err != nil {
			return seen, err
		}
		var machine v1alpha1.VirtualMachine
		err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.VirtualMachineName}, &machine)
		if client.IgnoreNotFound(err) != nil {
			return seen, kube.Named(err, "get", "VirtualMachine", s.Namespace, s.Spec.VirtualMachineName)
		}
		if err == nil {
			seen.machine = &machine
			seen.of = backend.Identity{UID: machine.UID, Namespace: machine.Namespace, Name: machine.Name, Cluster: cluster}
			if recorded == nil {
				recorded = machine.Status.Host
			}
		}
	}
	if recorded == nil {
		return seen, nil // there is nothing to take a snapshot of yet
	}
	if seen.store, seen.host, seen.err = r.store.SnapshotStore(recorded.Driver); seen.err != nil {
		seen.store = nil
		return seen, nil
	}
	if recorded.ID != seen.host.ID && s.Annotations[v1alpha1.AnnotationForgetHost] != recorded.ID {
		seen.elsewhere = recorded
		return seen, nil
	}
	ctx, cancel := external.Call(ctx)
	defer cancel()
	seen.state, seen.err = external.Found(seen.store.ObserveSnapshot(ctx, seen.id))
	return seen, nil
}
