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

// finish writes the status if it changed, then records events and metrics. It returns when to
// reconcile again.
func (r *Reconciler) finish(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, status v1alpha1.VirtualMachineStatus, p plan, done acted) (reconcile.Result, error) {
	was, is := kube.ConditionTransition(vm.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	kube.LogReady(ctx, is)
	actErr := done.server
	p.requeueAfter = earliest(done.retry(&status, p.now), p.requeueAfter)
	f := failureOf(observed, actErr)
	power := powerEventOf(observed, p, f)
	outcome := kube.Outcome{Urgent: power != nil || isUrgent(vm, &status, p, was, is), Hold: statusDelay(vm, &status, observed, p), Again: p.requeueAfter}
	outcome.Acted = p.acts() && f == noFailure
	switch {
	case errors.Is(actErr, backend.ErrInProgress):
		outcome.Again = earliest(taskCheckInterval, p.requeueAfter)
	case isRefused(f):
		_, synchronized := kube.ConditionTransition(nil, status.Conditions, v1alpha1.ConditionSynchronized)
		outcome.Again = earliest(kube.RejectedPause(synchronized.LastTransitionTime.Time, p.now), p.requeueAfter)
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
	written, result, err := r.Status.Finish(ctx, vm, after, outcome)
	if written {
		r.recordEvents(vm, observed, p, was, is)
		if power != nil {
			r.Events.Normal(vm, power.reason, power.action, power.message)
		}
		r.recordSynchronizedEvent(vm, after)
		r.recordDiskEvent(vm, after)
		r.recordServiceEvent(vm, after)
		r.recordRestoreEvent(vm, after)
		r.recordDurations(vm, after, observed)
	}
	return result, err
}

// firstStartDelay delays the change of the status from creating to starting for a new machine.
// Most machines run before it is over, which is written immediately, so the delay saves a
// write for each machine.
const firstStartDelay = 30 * time.Second

// statusDelay returns how long a status write may be delayed. The progress of a download is
// not kept in the status after its end.
func statusDelay(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus, observed observation, p plan) time.Duration {
	starting := p.action == start || observed.server != nil && observed.server.Task == backend.TaskStart && observed.server.Progress == ""
	if starting && status.Phase == v1alpha1.PhaseCreating && vm.Status.Phase == v1alpha1.PhaseCreating && vm.Status.Reason == creatingMessage {
		return firstStartDelay
	}
	return 0
}

// isUrgent reports whether the status has to be written without a delay.
func isUrgent(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus, p plan, was, is metav1.Condition) bool {
	power := stablePower(status)
	return actions[p.action].isRecorded ||
		hasNewSchedule(vm, status) || hasNewRestore(vm, status) || vm.Status.Phase != status.Phase || was.Status != is.Status || power != "" && power != stablePower(&vm.Status) ||
		isNews(was, is) || isRefusalNews(vm.Status.Conditions, status.Conditions)
}

// isRefusalNews reports whether a change of the spec cannot be applied from now on, or can be applied again.
func isRefusalNews(before, after []metav1.Condition) bool {
	was, is := kube.ConditionTransition(before, after, v1alpha1.ConditionSynchronized)
	return was.Reason != is.Reason && (was.Status == metav1.ConditionFalse || is.Status == metav1.ConditionFalse)
}

// recordSynchronizedEvent records that a change of the spec of a server cannot be applied, once. Ready says so if there is none.
func (r *Reconciler) recordSynchronizedEvent(before, after *v1alpha1.VirtualMachine) {
	was, is := kube.ConditionTransition(before.Status.Conditions, after.Status.Conditions, v1alpha1.ConditionSynchronized)
	_, ready := kube.ConditionTransition(nil, after.Status.Conditions, v1alpha1.ConditionReady)
	if is.Status == metav1.ConditionFalse && was.Reason != is.Reason && ready.Reason != is.Reason {
		r.Events.Warning(after, is.Reason, "ChangeServer", is.Message)
	}
}

// isNews reports whether a user is told of a condition by an event: each reset of a guest is news.
func isNews(was, is metav1.Condition) bool {
	return needsAttention(is.Reason) && (was.Reason != is.Reason || is.Reason == v1alpha1.ReasonGuestReset && was.Message != is.Message)
}

// stablePower returns the state of the server, or "" if it is a transient one.
func stablePower(status *v1alpha1.VirtualMachineStatus) v1alpha1.ServerState {
	if status.Server == nil || status.Server.State == v1alpha1.ServerStarting {
		return ""
	}
	return status.Server.State
}

// needsAttention reports whether a reason requires the attention of a user.
func needsAttention(reason string) bool {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonSecretMissing, v1alpha1.ReasonImageMissing, v1alpha1.ReasonDriverMissing, v1alpha1.ReasonCreateFailed,
		v1alpha1.ReasonPowerFailed, v1alpha1.ReasonDeleteFailed, v1alpha1.ReasonBackendUnavailable, v1alpha1.ReasonBackOff,
		v1alpha1.ReasonDriverConflict, v1alpha1.ReasonOnAnotherHost, v1alpha1.ReasonGuestStopped, v1alpha1.ReasonGuestReset, v1alpha1.ReasonGuestSilent, v1alpha1.ReasonGuestHalted,
		v1alpha1.ReasonNetworkFailed, v1alpha1.ReasonProbeFailed, v1alpha1.ReasonUnschedulable:
		return true
	}
	return false
}

// recordEvents records the events of a reconcile whose status was written.
func (r *Reconciler) recordEvents(vm *v1alpha1.VirtualMachine, observed observation, p plan, was, is metav1.Condition) {
	switch {
	case vm.Status.Server != nil && (p.action == create || p.action == claim && observed.server == nil):
		r.Events.Warning(vm, v1alpha1.ReasonServerLost, "CreateServer",
			"The driver "+observed.name+" does not have the machine "+vm.Status.Server.ID+" any more; Keelson creates a new one, with a new disk")
	case p.action == recordEnd && observed.server.Ended.Cause == backend.CauseMemoryLost:
		r.Events.Warning(vm, v1alpha1.ReasonMemoryLost, "StartServer", is.Message)
	case p.action == recordEnd && endedRun(observed.server.Ended):
		r.Events.Warning(vm, v1alpha1.ReasonServerRestarted, "StartServer", is.Message)
	case p.action == recordRestart:
		r.Events.Normal(vm, v1alpha1.ReasonRestartRequested, "StopServer", is.Message)
	case isNews(was, is):
		r.Events.Warning(vm, is.Reason, "Observe", is.Message)
	}
	if is.Reason == v1alpha1.ReasonGuestReset && isNews(was, is) {
		guestResets.WithLabelValues(observed.name).Inc()
	}
}
