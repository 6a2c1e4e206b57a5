package virtualmachine

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// finish writes the status if it changed, and what happened as events and metrics. It
// returns when to look again.
func (r *Reconciler) finish(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, status v1alpha1.VirtualMachineStatus, p plan, actErr error) (reconcile.Result, error) {
	was, is := kube.Turn(vm.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	kube.Summarized(ctx, is)
	f := failureOf(observed, actErr)
	outcome := kube.Outcome{Urgent: isUrgent(vm, &status, p, was, is), Hold: statusDelay(vm, &status, observed, p), Again: p.requeueAfter}
	outcome.Acted = p.acts() && f == noFailure
	switch {
	case errors.Is(actErr, backend.ErrInProgress):
		outcome.Again = earliest(taskCheckInterval, p.requeueAfter)
	case f == secretMissing:
		outcome.Again = earliest(kube.RejectedPause(is.LastTransitionTime.Time, p.now), p.requeueAfter)
	case f == backendUnavailable:
		outcome.Again = earliest(unreachableInterval(vm, p.now), p.requeueAfter)
	case isFailedAttempt(p, f) && !kube.IsStale(actErr):
		outcome.Again = earliest(status.StartFailure.RetryAfter.Sub(p.now), p.requeueAfter)
	case f == otherFailure:
		outcome.Err = actErr
	}
	after := vm.DeepCopy()
	after.Status = status
	r.recordCreated(vm, after)
	if !equality.Semantic.DeepEqual(vm.Status, status) {
		after.Status.LastUpdateTime = ptr.To(metav1.NewTime(p.now).Rfc3339Copy())
	}
	written, result, err := r.status.Finish(ctx, vm, after, outcome)
	if written {
		r.recordEvents(vm, observed, p, was, is)
		r.recordDurations(vm, after, observed)
	}
	return result, err
}

// firstStartHold is for how long a status says that the server of a new machine is being
// created although it is being started already. Most run by then, and that is written
// at once: the step between would be one write more for each machine.
const firstStartDelay = 30 * time.Second

// holdOf returns how long a change of status may wait. What was written of a download
// does not stay when that is over.
func statusDelay(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus, observed observation, p plan) time.Duration {
	starting := p.action == start || observed.server != nil && observed.server.Task == backend.TaskStart && observed.server.Progress == ""
	if starting && status.Phase == v1alpha1.PhaseCreating && vm.Status.Phase == v1alpha1.PhaseCreating && vm.Status.Reason == creatingMessage {
		return firstStartDelay
	}
	return 0
}

// isUrgent reports whether somebody waits for this change of status.
func isUrgent(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus, p plan, was, is metav1.Condition) bool {
	power := stablePower(status)
	return p.action == claim || p.action == recordEnd || p.action == recordRestart || p.action == completeRestart ||
		vm.Status.Phase != status.Phase || was.Status != is.Status || power != "" && power != stablePower(&vm.Status) ||
		was.Reason != is.Reason && needsAttention(is.Reason)
}

// powerOf returns the state of the server where that is one that lasts.
func stablePower(status *v1alpha1.VirtualMachineStatus) v1alpha1.ServerState {
	if status.Server == nil || status.Server.State == v1alpha1.ServerStarting {
		return ""
	}
	return status.Server.State
}

// needsPerson reports whether a person should look at it.
func needsAttention(reason string) bool {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonSecretMissing, v1alpha1.ReasonDriverMissing, v1alpha1.ReasonCreateFailed,
		v1alpha1.ReasonPowerFailed, v1alpha1.ReasonDeleteFailed, v1alpha1.ReasonBackendUnavailable, v1alpha1.ReasonBackOff,
		v1alpha1.ReasonDriverConflict, v1alpha1.ReasonOnAnotherHost, v1alpha1.ReasonGuestStopped, v1alpha1.ReasonGuestSilent:
		return true
	}
	return false
}

// tell records events of what has happened.
func (r *Reconciler) recordEvents(vm *v1alpha1.VirtualMachine, observed observation, p plan, was, is metav1.Condition) {
	switch {
	case vm.Status.Server != nil && (p.action == create || p.action == claim && observed.server == nil):
		r.events.Warning(vm, v1alpha1.ReasonServerLost, "CreateServer",
			"The driver "+observed.name+" does not have the server "+vm.Status.Server.ID+" any more; a new one is created, with a new disk")
	case p.action == recordEnd && endedRun(observed.server.Ended):
		r.events.Warning(vm, v1alpha1.ReasonServerRestarted, "StartServer", is.Message)
	case p.action == recordRestart:
		r.events.Normal(vm, v1alpha1.ReasonRestartRequested, "StopServer", is.Message)
	case was.Reason != is.Reason && needsAttention(is.Reason):
		r.events.Warning(vm, is.Reason, "Observe", is.Message)
	}
}
