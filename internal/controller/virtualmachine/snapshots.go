package virtualmachine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/kube"
)

// resolveSnapshot returns the UID of the snapshot that a new machine is made of; empty if it is made of none. The error is an
// image.ErrMissing, an image.ErrNotReady or a backend.FieldError.
func (r *Reconciler) resolveSnapshot(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) (types.UID, error) {
	given := vm.Spec.Image
	if given == nil || given.Snapshot == "" {
		return "", nil
	}
	if storeOf[backend.SnapshotStore](observed.driver) == nil {
		return "", &backend.FieldError{Field: "spec.image.snapshot", Message: fmt.Sprintf("the driver %s has no snapshots", observed.name)}
	}
	named, err := r.readySnapshot(ctx, sourceOf(vm), vm.Namespace)
	if err != nil {
		return "", err
	}
	if !isOnHost(named, &observed) {
		return "", &backend.FieldError{Field: "spec.image.snapshot", Message: describeOtherHost(named, &observed)}
	}
	return named.UID, nil
}

// readySnapshot returns a VirtualMachineSnapshot that is ready, and that machines of a namespace may be made of. The error is an
// image.ErrMissing or an image.ErrNotReady.
func (r *Reconciler) readySnapshot(ctx context.Context, key client.ObjectKey, namespace string) (*v1alpha1.VirtualMachineSnapshot, error) {
	var named v1alpha1.VirtualMachineSnapshot
	name, isForeign := key.Name, key.Namespace != namespace
	err := r.Live.Get(ctx, key, &named)
	switch {
	case isForeign && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && !isAllowed(&named, namespace)):
		// The same text in all cases: whoever may not use a snapshot does not learn whether it exists.
		return nil, fmt.Errorf("%w: the namespace %s has no VirtualMachineSnapshot %q from which machines of the namespace %s can be created; "+
			"its owner has to create it, or to add %[4]s to its spec.allowedNamespaces", image.ErrMissing, key.Namespace, name, namespace)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: there is no VirtualMachineSnapshot %q in this namespace; create it", image.ErrMissing, name)
	case err != nil:
		return nil, fmt.Errorf("get the VirtualMachineSnapshot %s: %w", key, err)
	}
	ready := meta.FindStatusCondition(named.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || named.Status.Host == nil:
		return nil, fmt.Errorf("%w: the VirtualMachineSnapshot %q is not taken yet", image.ErrNotReady, name)
	case ready.Status != "True":
		return nil, fmt.Errorf("%w: the VirtualMachineSnapshot %q: %s: %s", image.ErrNotReady, name, ready.Reason, ready.Message)
	case !named.DeletionTimestamp.IsZero():
		return nil, fmt.Errorf("%w: the VirtualMachineSnapshot %q is being deleted", image.ErrNotReady, name)
	}
	return &named, nil
}

// isOnHost reports whether a ready snapshot is where the driver keeps the machine.
func isOnHost(s *v1alpha1.VirtualMachineSnapshot, observed *observation) bool {
	return s.Status.Host.Driver == observed.name && s.Status.Host.ID == observed.host.ID
}

// describeOtherHost describes that it is not.
func describeOtherHost(s *v1alpha1.VirtualMachineSnapshot, observed *observation) string {
	host := s.Status.Host
	return fmt.Sprintf("the snapshot %s is on the host %s of the driver %s, and the machine on %s of %s",
		s.Name, host.Name, host.Driver, observed.host.Name, observed.name)
}

// sourceOf returns the name of the VirtualMachineSnapshot that a machine is made of; empty if it is made of none.
func sourceOf(vm *v1alpha1.VirtualMachine) client.ObjectKey {
	given := vm.Spec.Image
	if given == nil || given.Snapshot == "" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: cmp.Or(given.SnapshotNamespace, vm.Namespace), Name: given.Snapshot}
}

// isAllowed reports whether machines of a namespace may be made of a snapshot.
func isAllowed(s *v1alpha1.VirtualMachineSnapshot, namespace string) bool {
	return s.Namespace == namespace || slices.Contains(s.Spec.AllowedNamespaces, namespace)
}

// needsSnapshot reports whether a machine is made of a snapshot and not created yet, or is to be restored from it.
func needsSnapshot(vm *v1alpha1.VirtualMachine, s *v1alpha1.VirtualMachineSnapshot) bool {
	if vm.Namespace == s.Namespace && asksForRestore(vm) && vm.Spec.Restore.Snapshot == s.Name {
		return true
	}
	return sourceOf(vm) == client.ObjectKeyFromObject(s) && isAllowed(s, vm.Namespace) && vm.Status.Server == nil
}

// listUsers returns the machines in the namespaces whose machines may be made of a snapshot. A manager of some namespaces has no
// cache of the others, so all that it has are listed.
func listUsers(ctx context.Context, c client.Reader, s *v1alpha1.VirtualMachineSnapshot) ([]v1alpha1.VirtualMachine, error) {
	var machines v1alpha1.VirtualMachineList
	var options []client.ListOption
	if len(s.Spec.AllowedNamespaces) == 0 {
		options = append(options, client.InNamespace(s.Namespace))
	}
	if err := c.List(ctx, &machines, options...); err != nil {
		return nil, kube.Named(err, "list", "VirtualMachines", s.Namespace, "")
	}
	return slices.DeleteFunc(machines.Items, func(vm v1alpha1.VirtualMachine) bool { return !isAllowed(s, vm.Namespace) }), nil
}

// watchSnapshots enqueues the machines that wait for a snapshot or a restore, and the machine whose schedule made it.
func watchSnapshots(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		s, ok := object.(*v1alpha1.VirtualMachineSnapshot)
		if !ok {
			return nil
		}
		machines, err := listUsers(ctx, c, s)
		if err != nil {
			return nil // the next attempt of each machine comes by itself
		}
		var waiting []reconcile.Request
		for i := range machines {
			vm := &machines[i]
			isOwn := vm.Namespace == s.Namespace
			if needsSnapshot(vm, s) || isOwn && asksForRestore(vm) || isOwn && s.Labels[v1alpha1.LabelScheduledBy] == string(vm.UID) {
				waiting = append(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vm)})
			}
		}
		return waiting
	})
}

// collectSnapshots reports the sizes of snapshots, which their controller has measured.
func (c *collector) collectSnapshots(ctx context.Context, collected chan<- prometheus.Metric) {
	var all v1alpha1.VirtualMachineSnapshotList
	if err := c.cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache has not started
	}
	for i := range all.Items {
		if s := &all.Items[i]; s.Status.Size != nil {
			collected <- prometheus.MustNewConstMetric(snapshotDesc, prometheus.GaugeValue, float64(s.Status.Size.Value()), s.Namespace, s.Name, s.Spec.VirtualMachineName)
		}
	}
}

// SnapshotStore returns the driver of a name, which takes snapshots.
func (d *Drivers) SnapshotStore(driver string) (backend.SnapshotStore, v1alpha1.Host, error) {
	opened, err := d.get(driver)
	if err != nil {
		return nil, v1alpha1.Host{}, err
	}
	host := opened.Host()
	if store := storeOf[backend.SnapshotStore](opened); store != nil {
		return store, v1alpha1.Host{Driver: driver, ID: host.ID, Name: host.Name}, nil
	}
	return nil, v1alpha1.Host{}, fmt.Errorf("%w: the driver %s of the machine takes no snapshots; the drivers qemu and pod do", backend.ErrMissing, driver)
}

// WatchSnapshots sets the function to call with a snapshot that has changed.
func (d *Drivers) WatchSnapshots(notify func(backend.SnapshotIdentity)) { d.snapshots.Watch(notify) }
