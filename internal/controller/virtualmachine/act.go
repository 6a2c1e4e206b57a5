package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act does what the plan says. What the driver goes on with in the background is no
// error, except for a deletion, which is not done before it is done.
func (r *Reconciler) act(ctx context.Context, vm *v1alpha1.VirtualMachine, seen observation, p plan) error {
	if !p.acts() {
		return nil
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := r.call(calling, vm, seen, p)
	if errors.Is(err, backend.ErrInProgress) && p.verdict != remove {
		err = nil
	}
	if errors.Is(err, backend.ErrNotFound) {
		err = kube.ErrStale // it has just gone: look again
	}
	if err != nil {
		return fmt.Errorf("%s the server of VirtualMachine %s/%s with driver %s: %w", p.verdict, vm.Namespace, vm.Name, seen.name, err)
	}
	log.FromContext(ctx).V(1).Info("Acted", "driver", seen.name, "verdict", p.verdict)
	return nil
}

func (r *Reconciler) call(ctx context.Context, vm *v1alpha1.VirtualMachine, seen observation, p plan) error {
	switch p.verdict {
	case claim:
		return r.claim(ctx, vm, seen)
	case create:
		return r.create(ctx, vm, seen)
	case stop:
		r.noteStop(vm)
		return seen.driver.Stop(ctx, seen.id, grace(vm))
	case pause:
		return seen.driver.Pause(ctx, seen.id)
	case resume:
		return seen.driver.Resume(ctx, seen.id)
	case remove:
		return r.remove(ctx, vm, seen)
	}
	machine := newMachine(vm, seen.id)
	var err error
	if machine.Seed, err = r.seed(ctx, vm); err != nil {
		return err
	}
	if p.verdict == start {
		return seen.driver.Start(ctx, machine)
	}
	return seen.driver.Reconfigure(ctx, machine)
}

// create makes the server, which has been claimed.
func (r *Reconciler) create(ctx context.Context, vm *v1alpha1.VirtualMachine, seen observation) error {
	machine := newMachine(vm, seen.id)
	var err error
	if machine.Seed, err = r.seed(ctx, vm); err != nil {
		return err
	}
	if err := r.confirm(ctx, vm, seen); err != nil {
		return err
	}
	return seen.driver.Create(ctx, machine)
}

// confirm asks the API server whether vm is still wanted, and here: a server
// that is created for an object out of an old cache would be nobody's.
func (r *Reconciler) confirm(ctx context.Context, vm *v1alpha1.VirtualMachine, seen observation) error {
	var now v1alpha1.VirtualMachine
	err := r.live.Get(ctx, client.ObjectKeyFromObject(vm), &now)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask whether it is still wanted: %w", err)
	}
	if err != nil || now.UID != vm.UID || !now.DeletionTimestamp.IsZero() {
		return kube.ErrStale
	}
	if _, err := driverOf(&now, seen.name); err != nil || !isClaimed(&now, seen) {
		return kube.ErrStale
	}
	return nil
}

// remove deletes the server, and lets the object go when it is gone.
func (r *Reconciler) remove(ctx context.Context, vm *v1alpha1.VirtualMachine, seen observation) error {
	options := backend.DeleteOptions{Grace: grace(vm), KeepDisk: vm.Spec.DiskPolicy == v1alpha1.DiskRetain}
	if err := seen.driver.Delete(ctx, seen.id, options); err != nil {
		return err
	}
	if finalizer := seen.name + finalizerSuffix; slices.Contains(vm.Finalizers, finalizer) {
		before := vm.DeepCopy()
		vm.Finalizers = slices.DeleteFunc(vm.Finalizers, func(f string) bool { return f == finalizer })
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.client.Patch(ctx, vm, patch, client.FieldOwner(kube.FieldManager)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the finalizer: %w", err)
		}
	}
	r.mu.Lock()
	delete(r.stops, vm.UID)
	delete(r.booting, vm.UID)
	delete(r.created, vm.UID)
	r.mu.Unlock()
	deleteSeconds.WithLabelValues(seen.name).Observe(kube.Seconds(vm.DeletionTimestamp.Time, r.clock.Now()))
	log.FromContext(ctx).Info("Deleted server", "driver", seen.name)
	return nil
}

// noteStop notes when the stop of a server was asked for.
func (r *Reconciler) noteStop(vm *v1alpha1.VirtualMachine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.stops[vm.UID]; !found {
		r.stops[vm.UID] = r.clock.Now()
	}
}
