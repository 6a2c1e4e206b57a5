package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/requests"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// restoreSeen is what is observed for a restore that has not ended.
type restoreSeen struct {
	// unusable is why the machine cannot be restored from the snapshot; empty if it can.
	unusable string
	// previous is the VirtualMachineSnapshot of the present disks; nil if it does not exist. memory means that it has memory, too:
	// the machine has some, and goes on with that of the snapshot.
	previous *snapshots.Snapshot
	memory   bool
	// request is the request for the driver; nil if something is missing.
	request *backend.Restore
}

// restoreOf returns what is known about spec.restore.
func restoreOf(vm *v1alpha1.VirtualMachine, observed *observation) *snapshots.Restore {
	r := &snapshots.Restore{
		Object: vm, Kind: "VirtualMachineSnapshot", By: v1alpha1.LabelRestoreOf, Noun: "machine", Content: "disks",
		Idle: whyNotRestored(observed), Unusable: observed.restore.unusable, Previous: observed.restore.previous, Done: vm.Status.Restore,
		Grace: gracePeriod(vm),
	}
	if spec := vm.Spec.Restore; spec != nil {
		r.Spec = spec
		r.Begun = observed.server != nil && observed.server.Restoring != "" && observed.server.Restoring == r.Token()
	}
	return r
}

// whyNotRestored returns why a machine is not restored now; nil if it can be. One that is off or asleep can be restored, too.
func whyNotRestored(observed *observation) *metav1.Condition {
	switch {
	case observed.driver != nil && storeOf[backend.SnapshotStore](observed.driver) == nil:
		return &metav1.Condition{Reason: v1alpha1.ReasonInvalidSpec, Message: fmt.Sprintf(
			"The machine is not restored: the driver %s has no snapshots. Remove spec.restore, or use the driver qemu or pod", observed.name)}
	case observed.server == nil || observed.server.State == backend.StateAbsent:
		return &metav1.Condition{Reason: v1alpha1.ReasonMachineNotCreated, Message: "The machine is restored after it has its disks"}
	}
	return nil
}

// asksForRestore reports whether the VirtualMachine requests a restore that has not ended.
func asksForRestore(vm *v1alpha1.VirtualMachine) bool {
	return restoreOf(vm, &observation{}).IsRequested()
}

// observeRestore reads the VirtualMachineSnapshots of a restore.
func (r *Reconciler) observeRestore(ctx context.Context, vm *v1alpha1.VirtualMachine, observed *observation) error {
	if !asksForRestore(vm) || observed.err != nil || whyNotRestored(observed) != nil {
		return nil
	}
	restore := restoreOf(vm, observed)
	named, err := r.readySnapshot(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: restore.Spec.Snapshot}, vm.Namespace)
	switch {
	case errors.Is(err, image.ErrMissing), errors.Is(err, image.ErrNotReady):
		_, restore.Unusable, _ = strings.Cut(err.Error(), ": ") // it is no image
	case err != nil:
		return err
	case named.Spec.VirtualMachineName != vm.Name || named.Status.TakenAt.Before(&vm.CreationTimestamp):
		restore.Unusable = restore.OfAnother(kind.Kind, "spec.image.snapshot")
	case !isOnHost(named, observed):
		restore.Unusable = describeOtherHost(named, observed)
	}
	if restore.Previous, err = r.scheduled(vm, *observed).ObservePrevious(ctx, restore); err != nil {
		return err
	}
	observed.restore.unusable, observed.restore.previous = restore.Unusable, restore.Previous
	wakes := vm.Spec.Action != v1alpha1.ActionStopped
	observed.restore.memory = wakes && named != nil && named.Status.MemorySize != nil && (observed.server.IsOn() || observed.server.State == backend.StateAsleep)
	if restore.IsDue(r.Clock.Now()) {
		observed.restore.request = &backend.Restore{
			Token:    restore.Token(),
			Snapshot: backend.SnapshotIdentity{UID: named.UID, Namespace: named.Namespace, Name: named.Name},
			Memory:   wakes,
		}
	}
	return nil
}

// isRestored reports whether the driver has done the restore of spec.restore.
func isRestored(vm *v1alpha1.VirtualMachine, observed *observation) bool {
	return vm.Spec.Restore != nil && observed.server != nil && observed.server.Restored == requests.Token(&vm.Spec.Restore.RequestedAt)
}

// failedRestore returns why the driver has not done the restore of spec.restore; nil if it has not failed.
func failedRestore(vm *v1alpha1.VirtualMachine, observed *observation) error {
	if vm.Spec.Restore == nil || observed.server == nil || isRestored(vm, observed) {
		return nil
	}
	if failed := observed.server.FailedRestore; failed != nil && failed.Token == requests.Token(&vm.Spec.Restore.RequestedAt) {
		return failed.Err
	}
	return nil
}

// canRestore reports whether a restore is requested that has not ended, and nothing prevents it but the run of the machine and the snapshot of
// the present disks.
func canRestore(vm *v1alpha1.VirtualMachine, observed *observation) bool {
	r := restoreOf(vm, observed)
	return r.IsRequested() && r.Idle == nil && r.Unusable == "" && !isRestored(vm, observed) && failedRestore(vm, observed) == nil
}

// decideRestore returns the action for a restore that is due, or waits and is not wanted any more, or "" if there is none. The server has
// no task, and is off or asleep while its disks are replaced.
func (p *plan) decideRestore(vm *v1alpha1.VirtualMachine, observed *observation) action {
	if observed.restore.request == nil && observed.server.RestoreWaits {
		return withdraw // it would begin later, also if the machine stays off
	}
	if observed.restore.request == nil || isRestored(vm, observed) || failedRestore(vm, observed) != nil {
		return ""
	}
	switch server := observed.server; {
	case server.IsOn():
		return stop
	case server.State == backend.StateStopped, server.State == backend.StateAsleep:
		return restore
	}
	return ""
}

// decidePrevious decides about the VirtualMachineSnapshot of the present disks.
func decidePrevious(vm *v1alpha1.VirtualMachine, observed *observation) snapshots.PreviousAction {
	server := observed.server
	if observed.err != nil || server == nil || server.Task != backend.TaskNone || isRestored(vm, observed) || failedRestore(vm, observed) != nil {
		return snapshots.PreviousKeep // it may be the only copy of the disks before
	}
	return restoreOf(vm, observed).DecidePrevious(observed.restore.request != nil)
}

// actOnPrevious makes or deletes the VirtualMachineSnapshot of the present disks.
func (r *Reconciler) actOnPrevious(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, p plan) error {
	wanted := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: vm.Name, Memory: observed.restore.memory},
	}
	return r.scheduled(vm, observed).ActOnPrevious(ctx, restoreOf(vm, &observed), p.previous, wanted)
}

// summarizeRestore sets or removes what the status has about spec.restore, given the error of actOnPrevious.
func summarizeRestore(vm *v1alpha1.VirtualMachine, observed *observation, p plan, err error, status *v1alpha1.VirtualMachineStatus) {
	if vm.Spec.Restore == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionRestored)
		return
	}
	if failed := failedRestore(vm, observed); asksForRestore(vm) && observed.err == nil && (failed != nil || isRestored(vm, observed)) {
		message := ""
		if failed != nil {
			message = failed.Error()
		}
		status.Restore = restoreOf(vm, observed).End(failed != nil, message, p.now)
	}
	is := restoredCondition(vm, observed, p, err, status)
	kube.SetConditions(vm, &status.Conditions, p.now, is)
}

// restoredCondition returns the condition of a VirtualMachine with spec.restore.
func restoredCondition(vm *v1alpha1.VirtualMachine, observed *observation, p plan, err error, status *v1alpha1.VirtualMachineStatus) metav1.Condition {
	r := restoreOf(vm, observed)
	r.Done = status.Restore
	if !r.IsDone() && (observed.err != nil || !vm.DeletionTimestamp.IsZero()) {
		if before := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionRestored); before != nil {
			return *before
		}
		return newCondition(v1alpha1.ConditionRestored, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The restore has not begun")
	}
	if !r.IsDone() && err != nil && !kube.IsStale(err) {
		return newCondition(v1alpha1.ConditionRestored, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "%v. Keelson retries", err)
	}
	inProgress := observed.server != nil && observed.server.Task == backend.TaskRestore
	return r.Condition(p.previous, observed.restore.request != nil || inProgress)
}

// hasNewRestore reports whether a restore has ended, or the reason of its condition has changed.
func hasNewRestore(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus) bool {
	was, is := kube.ConditionTransition(vm.Status.Conditions, status.Conditions, v1alpha1.ConditionRestored)
	return was.Reason != is.Reason || !equality.Semantic.DeepEqual(vm.Status.Restore, status.Restore)
}

// recordRestoreEvent records an event if a restore has ended, or cannot begin.
func (r *Reconciler) recordRestoreEvent(vm, after *v1alpha1.VirtualMachine) {
	was, is := kube.ConditionTransition(vm.Status.Conditions, after.Status.Conditions, v1alpha1.ConditionRestored)
	switch {
	case was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration:
	case is.Status == metav1.ConditionTrue && was.Status != is.Status:
		r.Events.Normal(vm, is.Reason, "Restore", is.Message)
	case is.Reason == v1alpha1.ReasonRestoreFailed, is.Reason == v1alpha1.ReasonSnapshotNotAvailable:
		r.Events.Warning(vm, is.Reason, "Restore", is.Message)
	}
}
