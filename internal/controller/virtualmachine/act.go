package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
	inTime, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := actions[p.action].do(r, inTime, vm, observed, p)
	if errors.Is(err, backend.ErrInProgress) && p.action != remove {
		err = nil
	}
	if errors.Is(err, backend.ErrNotFound) || errors.Is(err, backend.ErrActive) {
		err = kube.ErrStale // the server has disappeared, or is in use again: requeue
	}
	if err != nil {
		return fmt.Errorf("%s the machine of VirtualMachine %s/%s with driver %s: %w", p.action, vm.Namespace, vm.Name, observed.name, err)
	}
	log.FromContext(ctx).V(1).Info("Acted", "driver", observed.name, "action", p.action)
	return nil
}

// actions is what each action does and says. A new one needs a row, and the place in decide that chooses it.
var actions = map[action]struct {
	// do carries it out; nil for one that changes nothing but the status.
	do func(*Reconciler, context.Context, *v1alpha1.VirtualMachine, observation, plan) error
	// reason and message are Ready meanwhile, unless readyByPlan knows more.
	reason, message string
	// failed is the reason of Ready after a failed attempt, if attempts are counted and delayed by a backoff.
	failed string
	// isRecorded is true if the status records it at once: the next reconcile depends on that.
	isRecorded bool
}{
	recordEnd:       {isRecorded: true},
	recordRestart:   {isRecorded: true, reason: v1alpha1.ReasonStopping, message: "The machine is being restarted, as requested by spec.restartRequestedAt"},
	completeRestart: {isRecorded: true},
	claim:           {isRecorded: true, do: (*Reconciler).claim},
	create:          {do: (*Reconciler).create, reason: v1alpha1.ReasonCreating, message: creatingMessage, failed: v1alpha1.ReasonCreateFailed},
	start:           {do: (*Reconciler).start, reason: v1alpha1.ReasonStarting, message: "The machine is being started", failed: v1alpha1.ReasonPowerFailed},
	stop:            {do: (*Reconciler).stop, reason: v1alpha1.ReasonStopping, message: "The machine is being stopped"},
	pause:           {do: calling("Driver.Pause", "pause", Driver.Pause), reason: v1alpha1.ReasonStopping, message: "The machine is being paused"},
	sleep:           {do: (*Reconciler).sleep, reason: v1alpha1.ReasonFallingAsleep, message: "The memory of the machine is being saved, as requested by "},
	resume:          {do: calling("Driver.Resume", "resume", Driver.Resume), reason: v1alpha1.ReasonStarting, message: "The machine is being started"},
	restore:         {do: (*Reconciler).restore, reason: v1alpha1.ReasonRestoring, message: restoringMessage},
	withdraw:        {do: (*Reconciler).restore},
	reconfigure:     {do: (*Reconciler).reconfigure},
	remove:          {do: (*Reconciler).remove},
}

func (r *Reconciler) stop(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, _ plan) error {
	r.recordFirst(r.stops, vm)
	return called(ctx, observed.driver, "Driver.Stop", "stop", func(ctx context.Context) error {
		return observed.driver.Stop(ctx, observed.id, gracePeriod(vm))
	})
}

// calling is an action that is one call of the driver.
func calling(span, label string, call func(Driver, context.Context, backend.Identity) error) func(*Reconciler, context.Context, *v1alpha1.VirtualMachine, observation, plan) error {
	return func(_ *Reconciler, ctx context.Context, _ *v1alpha1.VirtualMachine, observed observation, _ plan) error {
		return called(ctx, observed.driver, span, label, func(ctx context.Context) error { return call(observed.driver, ctx, observed.id) })
	}
}

func (r *Reconciler) sleep(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, p plan) error {
	err := called(ctx, observed.driver, "Driver.Sleep", "sleep", func(ctx context.Context) error {
		return observed.driver.Sleep(ctx, observed.id, p.power.sleep)
	})
	if observed.server.IsOn() && !errors.Is(err, backend.ErrActive) {
		r.mu.Lock()
		delete(r.wakes, vm.UID)
		r.mu.Unlock()
		r.recordFirst(r.sleeps, vm)
	}
	return err
}

func (r *Reconciler) restore(ctx context.Context, _ *v1alpha1.VirtualMachine, observed observation, _ plan) error {
	store, request := storeOf[backend.SnapshotStore](observed.driver), ptr.Deref(observed.restore.request, backend.Restore{}) // none withdraws one
	return called(ctx, observed.driver, "Driver.RestoreServer", "restore", func(ctx context.Context) error {
		return store.RestoreServer(ctx, observed.id, request)
	})
}

func (r *Reconciler) reconfigure(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, _ plan) (err error) {
	machine := newMachine(vm, observed.id)
	if machine.Seed, err = r.seed(ctx, vm); err != nil {
		return err
	}
	return called(ctx, observed.driver, "Driver.Reconfigure", "reconfigure", func(ctx context.Context) error {
		return observed.driver.Reconfigure(ctx, machine)
	})
}

func (r *Reconciler) start(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, _ plan) (err error) {
	machine := newMachine(vm, observed.id)
	machine.Seed, err = r.seed(ctx, vm)
	switch hasRun := observed.server.Run != ""; {
	case hasRun && (errors.Is(err, errSecretMissing) || errors.Is(err, backend.ErrInvalid)):
		// The server has the seed of its last start. Its hash stays, so that a spec with another Secret is not taken for applied.
		machine.KeepsSeed, machine.Hash = true, observed.server.Hash
	case err != nil:
		return err
	}
	if observed.server.State == backend.StateAsleep {
		r.recordFirst(r.wakes, vm)
	}
	return called(ctx, observed.driver, "Driver.Start", "start", func(ctx context.Context) error {
		return observed.driver.Start(ctx, machine)
	})
}

// create creates the server. The VirtualMachine has been claimed before.
func (r *Reconciler) create(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, _ plan) error {
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
	return called(ctx, observed.driver, "Driver.Create", "create", func(ctx context.Context) error {
		return observed.driver.Create(ctx, machine)
	})
}

// confirmStillWanted reads vm from the API server and fails unless it still exists and is still
// claimed for this host: a server created for a stale cached object would be an orphan.
func (r *Reconciler) confirmStillWanted(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) error {
	var now v1alpha1.VirtualMachine
	return kube.CheckLive(ctx, r.Live, kind.Kind, vm, &now, func() bool {
		_, err := driverOf(&now, observed.name)
		return err != nil || !isClaimed(&now, observed) || !now.DeletionTimestamp.IsZero()
	})
}

// remove deletes the server, and then removes the finalizer.
func (r *Reconciler) remove(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, _ plan) error {
	options := backend.DeleteOptions{
		Grace: gracePeriod(vm), KeepDisk: vm.Spec.DiskPolicy == v1alpha1.DiskRetain, KeepDisks: retainedDisks(vm.Spec.Disks),
	}
	err := called(ctx, observed.driver, "Driver.Delete", "delete", func(ctx context.Context) error {
		return observed.driver.Delete(ctx, observed.id, options)
	})
	if err != nil {
		return err
	}
	if err := kube.RemoveFinalizer(ctx, r.Client, vm, observed.name+finalizerSuffix); err != nil {
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
	deleteSeconds.WithLabelValues(observed.name).Observe(kube.Seconds(vm.DeletionTimestamp.Time, r.Clock.Now()))
	log.FromContext(ctx).Info("Deleted machine", "driver", observed.name)
	return nil
}

// recordFirst records when a server was first told something.
func (r *Reconciler) recordFirst(times map[types.UID]time.Time, vm *v1alpha1.VirtualMachine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, found := times[vm.UID]; !found {
		times[vm.UID] = r.Clock.Now()
	}
}
