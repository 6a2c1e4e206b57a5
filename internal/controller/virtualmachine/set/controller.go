// Package set keeps the VirtualMachines of each VirtualMachineSet.
package set

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics and events.
const Name = "virtualmachineset"

// machineOwner indexes VirtualMachines by the UID of the VirtualMachineSet that controls them.
const machineOwner = "virtualmachineset.controller"

var (
	kind        = v1alpha1.SchemeGroupVersion.WithKind("VirtualMachineSet")
	machineKind = v1alpha1.SchemeGroupVersion.WithKind("VirtualMachine")
)

// Indexes are the cache indexes that a Reconciler needs.
var Indexes = []kube.Index{{Object: &v1alpha1.VirtualMachine{}, Field: machineOwner, Keys: kube.ByController(kind.GroupKind())}}

// Reconciler reconciles the VirtualMachines of a VirtualMachineSet.
type Reconciler struct{ kube.Base }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options) error {
	if err := kube.AddIndexes(mgr.GetFieldIndexer(), Indexes...); err != nil {
		return err
	}
	r := &Reconciler{kube.BaseOf(mgr, kind, Name)}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VirtualMachineSet{}).
		Watches(&v1alpha1.VirtualMachine{}, watchMachines())
	return setup.Controller(mgr, Name, options, watches, r)
}

// watchMachines enqueues the VirtualMachineSet that controls a machine, and the one that waits for the name of a machine.
func watchMachines() handler.EventHandler {
	return kube.WatchChildren(kind.GroupKind(), func(_ context.Context, machine client.Object) []client.ObjectKey {
		if set, _, found := splitName(machine.GetName()); found {
			return []client.ObjectKey{{Namespace: machine.GetNamespace(), Name: set}}
		}
		return nil
	})
}

// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachinesets/status,verbs=update
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachinesets/finalizers,verbs=update
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachines,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualdisks,verbs=create;get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile creates, updates, replaces and deletes the machines of set as its spec requires, and updates its status.
func (r *Reconciler) Reconcile(ctx context.Context, set *v1alpha1.VirtualMachineSet) (reconcile.Result, error) {
	if !set.DeletionTimestamp.IsZero() {
		// The garbage collector deletes the machines. A write would interfere.
		return reconcile.Result{}, nil
	}
	seen, err := r.observe(ctx, set)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide(set, seen, r.Clock.Now())
	kube.LogAction(ctx, plan.action())
	actErr := r.act(ctx, set, plan)
	status := summarize(set, seen, plan, actErr)
	return r.finish(ctx, set, status, plan, actErr)
}

// observation is the observed state of the cluster. The machines are shared with the cache and must not be modified.
type observation struct {
	// owned are the machines that the set controls, by number. Others that it controls do not have a name of the set; they are
	// left alone.
	owned map[int32]*v1alpha1.VirtualMachine
	// others are machines that the set does not control, and that have a name that it needs.
	others map[int32]*v1alpha1.VirtualMachine
}

func (r *Reconciler) observe(ctx context.Context, set *v1alpha1.VirtualMachineSet) (observation, error) {
	seen := observation{owned: map[int32]*v1alpha1.VirtualMachine{}, others: map[int32]*v1alpha1.VirtualMachine{}}
	var owned v1alpha1.VirtualMachineList
	err := r.Client.List(ctx, &owned, client.InNamespace(set.Namespace), client.MatchingFields{machineOwner: string(set.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return seen, fmt.Errorf("list the VirtualMachines of VirtualMachineSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	for i := range owned.Items {
		if name, number, found := splitName(owned.Items[i].Name); found && name == set.Name {
			seen.owned[number] = &owned.Items[i]
		}
	}
	for number := range replicas(set) {
		if seen.owned[number] != nil {
			continue
		}
		var named v1alpha1.VirtualMachine
		key := client.ObjectKey{Namespace: set.Namespace, Name: machineName(set, number)}
		switch err := r.Client.Get(ctx, key, &named); {
		case client.IgnoreNotFound(err) != nil:
			return seen, kube.Named(err, "get", "VirtualMachine", key.Namespace, key.Name)
		case err != nil: // it does not exist
		case metav1.IsControlledBy(&named, set):
			seen.owned[number] = &named // it was added to the cache between the two reads
		default:
			seen.others[number] = &named
		}
	}
	return seen, nil
}
