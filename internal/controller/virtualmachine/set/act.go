package set

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act executes the plan. It stops at the first error, except that a name with another owner does not stop the other machines.
func (r *Reconciler) act(ctx context.Context, set *v1alpha1.VirtualMachineSet, p plan) error {
	if !p.acts() {
		return nil
	}
	if err := r.checkLive(ctx, set); err != nil {
		return err
	}
	var taken error
	for _, number := range p.create {
		switch err := r.create(ctx, set, number, p.hash); {
		case errors.Is(err, kube.ErrNotOwned):
			taken = cmp.Or(taken, error(&takenError{machineName(set, number)}))
		case err != nil:
			return err
		}
	}
	for _, machine := range p.remove {
		if err := r.remove(ctx, set, machine, v1alpha1.ReasonMachineDeleted, "the set was scaled down"); err != nil {
			return err
		}
	}
	for _, change := range p.changes {
		if err := r.change(ctx, set, change, p); err != nil {
			return err
		}
	}
	return taken
}

// takenError means that a machine with a name of the set has another owner, which the cache does not have yet.
type takenError struct{ machine string }

func (e *takenError) Error() string {
	return fmt.Sprintf("VirtualMachine %s: %v", e.machine, kube.ErrNotOwned)
}

func (e *takenError) Unwrap() error { return kube.ErrNotOwned }

// checkLive compares the cached set with the API server: with an outdated number of replicas, or an outdated template, machines and
// their disks would be deleted.
func (r *Reconciler) checkLive(ctx context.Context, set *v1alpha1.VirtualMachineSet) error {
	var now v1alpha1.VirtualMachineSet
	return kube.CheckLive(ctx, r.Live, kind.Kind, set, &now, func() bool { return now.Generation != set.Generation || !now.DeletionTimestamp.IsZero() })
}

// create creates a machine and its VirtualDisks. Disks of an earlier machine with its name are used again.
func (r *Reconciler) create(ctx context.Context, set *v1alpha1.VirtualMachineSet, number int32, hash string) error {
	machine := newMachine(set, number, hash)
	var errs []error
	for _, disk := range newDisks(set, machine.Name) {
		errs = append(errs, r.createDisk(ctx, disk))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := r.CreateChild(ctx, machine, machineKind, set, kind.GroupKind()); err != nil {
		return err
	}
	r.tell(ctx, set, machine, v1alpha1.ReasonMachineCreated, "CreateMachine", "Created VirtualMachine %q", machine.Name)
	return nil
}

// createDisk creates a VirtualDisk, unless there is one that stays: a machine would start without one that is being deleted.
func (r *Reconciler) createDisk(ctx context.Context, disk *v1alpha1.VirtualDisk) error {
	err := r.Client.Create(ctx, disk, client.FieldOwner(kube.FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		return kube.Named(err, "create", "VirtualDisk", disk.Namespace, disk.Name)
	}
	var found v1alpha1.VirtualDisk
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(disk), &found); err != nil {
		return kube.Named(err, "get", "VirtualDisk", disk.Namespace, disk.Name)
	}
	if !found.DeletionTimestamp.IsZero() {
		return fmt.Errorf("VirtualDisk %s of an earlier machine is being deleted: remove what holds it, or wait", disk.Name)
	}
	return nil
}

// change changes a machine that exists. The observed version is the precondition, and with it the UID.
func (r *Reconciler) change(ctx context.Context, set *v1alpha1.VirtualMachineSet, c change, p plan) error {
	if c.action == replace {
		// Nothing is deleted for a machine that the API would reject. Otherwise it says that the name exists, or that a quota is full.
		next := newMachine(set, c.number, p.hash)
		if err := r.Client.Create(ctx, next, client.DryRunAll, client.FieldOwner(kube.FieldManager)); apierrors.IsInvalid(err) {
			return kube.Named(err, "create", machineKind.Kind, next.Namespace, next.Name)
		}
		return r.remove(ctx, set, c.machine, v1alpha1.ReasonMachineReplaced, "it cannot change "+strings.Join(c.fields, ", ")+". It is created again")
	}
	// Not an apply: it would leave the fields that the template had before, because the create owns them.
	changed := c.machine.DeepCopy()
	reason, message := v1alpha1.ReasonMachineUpdated, "Updated VirtualMachine %q"
	if c.action == update {
		applyTemplate(set, changed, p.hash)
	} else {
		reason, message = v1alpha1.ReasonMachineRestarted, "Restarted VirtualMachine %q: a change of the template requires it"
		at := metav1.NewTime(p.at).Rfc3339Copy()
		changed.Spec.RestartRequestedAt = &at
		changed.Annotations = merged(changed.Annotations, map[string]string{v1alpha1.AnnotationStartedTemplateHash: p.hash})
	}
	patch := client.MergeFromWithOptions(c.machine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(kube.FieldManager)); err != nil {
		return kube.Named(err, "patch", machineKind.Kind, changed.Namespace, changed.Name)
	}
	r.tell(ctx, set, changed, reason, "ChangeMachine", message, changed.Name)
	return nil
}

// remove deletes a machine. The garbage collector and the controller of VirtualMachines do the rest.
func (r *Reconciler) remove(ctx context.Context, set *v1alpha1.VirtualMachineSet, machine *v1alpha1.VirtualMachine, reason, why string) error {
	if err := kube.Delete(ctx, r.Client, machine); err != nil {
		return kube.Named(err, "delete", machineKind.Kind, machine.Namespace, machine.Name)
	}
	r.tell(ctx, set, machine, reason, "DeleteMachine", "Deleted VirtualMachine %q: %s", machine.Name, why)
	return nil
}

// tell logs what was done to a machine, and records an event.
func (r *Reconciler) tell(ctx context.Context, set *v1alpha1.VirtualMachineSet, machine *v1alpha1.VirtualMachine, reason, doing, message string, args ...any) {
	note := fmt.Sprintf(message, args...)
	log.FromContext(ctx).Info(note, machineKind.Kind, machine.Name)
	r.Events.Normal(set, reason, doing, note)
}
