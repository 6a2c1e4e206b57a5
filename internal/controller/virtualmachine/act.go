package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// writeRetry is the delay after a failure to write an object of a machine.
	writeRetry = 2 * time.Second
	// takenRetry is the delay while its name is taken: objects of others are not in the cache, so nothing tells when they go.
	takenRetry = 15 * time.Second
)

// acted are the errors of what was done. Each has its own condition.
type acted struct{ server, service, previous, schedule error }

// retry returns when to write again what could not be written; zero means never.
func (a acted) retry(status *v1alpha1.VirtualMachineStatus, now time.Time) (pause time.Duration) {
	if since := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionServiceReady); since != nil && kube.IsRejected(a.service) {
		pause, a.service = kube.RejectedPause(since.LastTransitionTime.Time, now), nil
	}
	for _, err := range []error{a.service, a.previous, a.schedule} {
		switch {
		case errors.Is(err, kube.ErrNotOwned):
			pause = earliest(pause, takenRetry)
		case err != nil:
			pause = earliest(pause, writeRetry)
		}
	}
	return pause
}

// act carries out the plan. The Service of a machine that is being deleted goes before it: its last step ends the object.
func (r *Reconciler) act(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, p plan) (done acted) {
	done.service = r.actOnService(ctx, vm, observed.service, p.service)
	if done.service == nil || vm.DeletionTimestamp.IsZero() {
		done.server = r.actOnServer(ctx, vm, observed, p)
	}
	done.previous = r.actOnPrevious(ctx, vm, observed, p)
	if p.schedule != nil {
		done.schedule = r.scheduled(vm, observed).Act(ctx, newSchedule(vm, observed), p.schedule)
	}
	return done
}

// actOnServer carries out the action. An operation that continues in the background is not an error,
// except for a deletion, which has to complete before the finalizer is removed.
func (r *Reconciler) actOnServer(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, p plan) error {
	if !p.acts() {
		return nil
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := r.call(calling, vm, observed, p)
	if errors.Is(err, backend.ErrInProgress) && p.action != remove {
		err = nil
	}
	if errors.Is(err, backend.ErrNotFound) || errors.Is(err, backend.ErrActive) {
		err = kube.ErrStale // the server has disappeared, or is in use again: requeue
	}
	if err != nil {
		return fmt.Errorf("%s the server of VirtualMachine %s/%s with driver %s: %w", p.action, vm.Namespace, vm.Name, observed.name, err)
	}
	log.FromContext(ctx).V(1).Info("Acted", "driver", observed.name, "action", p.action)
	return nil
}

func (r *Reconciler) call(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, p plan) error {
	switch p.action {
	case claim:
		return r.claim(ctx, vm, observed)
	case create:
		return r.create(ctx, vm, observed)
	case stop:
		r.recordStop(vm)
		return observed.driver.Stop(ctx, observed.id, gracePeriod(vm))
	case pause:
		return observed.driver.Pause(ctx, observed.id)
	case sleep:
		err := observed.driver.Sleep(ctx, observed.id, p.power.sleep)
		if observed.server.IsOn() && !errors.Is(err, backend.ErrActive) {
			r.recordSleep(vm)
		}
		return err
	case resume:
		return observed.driver.Resume(ctx, observed.id)
	case restore:
		return restoreServer(ctx, observed.driver, observed.id, *observed.restore.request)
	case withdraw:
		return restoreServer(ctx, observed.driver, observed.id, backend.Restore{})
	case remove:
		return r.remove(ctx, vm, observed)
	}
	machine := newMachine(vm, observed.id)
	var err error
	machine.Seed, err = r.seed(ctx, vm)
	if p.action != start {
		if err != nil {
			return err
		}
		return observed.driver.Reconfigure(ctx, machine)
	}
	switch hasRun := observed.server.Run != ""; {
	case hasRun && (errors.Is(err, errSecretMissing) || errors.Is(err, backend.ErrInvalid)):
		// The server has the seed of its last start. Its hash stays, so that a spec with another Secret is not taken for applied.
		machine.KeepsSeed, machine.Hash = true, observed.server.Hash
	case err != nil:
		return err
	}
	r.recordWake(vm, observed)
	return observed.driver.Start(ctx, machine)
}

// create creates the server. The VirtualMachine has been claimed before.
func (r *Reconciler) create(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) error {
	machine := newMachine(vm, observed.id)
	var err error
	if machine.Seed, err = r.seed(ctx, vm); err != nil {
		return err
	}
	if machine.Image, err = r.resolveImage(ctx, machine.Image, observed.name); err != nil {
		return err
	}
	if machine.Snapshot, err = r.resolveSnapshot(ctx, vm, observed); err != nil {
		return err
	}
	if err := r.confirmStillWanted(ctx, vm, observed); err != nil {
		return err
	}
	return observed.driver.Create(ctx, machine)
}

// confirmStillWanted reads vm from the API server and fails unless it still exists and is still
// claimed for this host: a server created for a stale cached object would be an orphan.
func (r *Reconciler) confirmStillWanted(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) error {
	var now v1alpha1.VirtualMachine
	return kube.CheckLive(ctx, r.live, kind.Kind, vm, &now, func() bool {
		_, err := driverOf(&now, observed.name)
		return err != nil || !isClaimed(&now, observed) || !now.DeletionTimestamp.IsZero()
	})
}

// remove deletes the server, and then removes the finalizer.
func (r *Reconciler) remove(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) error {
	options := backend.DeleteOptions{
		Grace: gracePeriod(vm), KeepDisk: vm.Spec.DiskPolicy == v1alpha1.DiskRetain, KeepDisks: retainedDisks(vm.Spec.Disks),
	}
	if err := observed.driver.Delete(ctx, observed.id, options); err != nil {
		return err
	}
	if err := kube.RemoveFinalizer(ctx, r.client, vm, observed.name+finalizerSuffix); err != nil {
		return err
	}
	r.probers.forget(vm.UID)
	r.mu.Lock()
	delete(r.stops, vm.UID)
	delete(r.sleeps, vm.UID)
	delete(r.wakes, vm.UID)
	delete(r.booting, vm.UID)
	delete(r.created, vm.UID)
	r.mu.Unlock()
	deleteSeconds.WithLabelValues(observed.name).Observe(kube.Seconds(vm.DeletionTimestamp.Time, r.clock.Now()))
	log.FromContext(ctx).Info("Deleted server", "driver", observed.name)
	return nil
}

// recordSleep records when a server was first told to sleep.
func (r *Reconciler) recordSleep(vm *v1alpha1.VirtualMachine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wakes, vm.UID)
	if _, found := r.sleeps[vm.UID]; !found {
		r.sleeps[vm.UID] = r.clock.Now()
	}
}

// recordWake records when a server that is asleep was first told to start.
func (r *Reconciler) recordWake(vm *v1alpha1.VirtualMachine, observed observation) {
	if observed.server == nil || observed.server.State != backend.StateAsleep {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.wakes[vm.UID]; !found {
		r.wakes[vm.UID] = r.clock.Now()
	}
}

// recordStop records when the stop of a server was requested.
func (r *Reconciler) recordStop(vm *v1alpha1.VirtualMachine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := r.stops[vm.UID]; !found {
		r.stops[vm.UID] = r.clock.Now()
	}
}
