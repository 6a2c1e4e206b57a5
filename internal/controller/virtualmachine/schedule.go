package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// keepSnapshots makes the snapshots of spec.snapshots and deletes those that are not kept, and sets what the status has about
// them. It returns when to do so again; zero means never.
func (r *Reconciler) keepSnapshots(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, p plan, status *v1alpha1.VirtualMachineStatus) time.Duration {
	status.Snapshots = nil
	if vm.Spec.Snapshots == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSnapshotsUpToDate)
		return 0
	}
	of := newSnapshotSchedule(vm)
	of.Idle = whyNoSnapshots(observed, status)
	var due *snapshots.Plan
	var err error
	if vm.DeletionTimestamp.IsZero() {
		due, err = r.actOnSchedule(ctx, vm, observed, of, p.now)
	}
	progress := snapshots.Summarize(of, due, err, p.now, &status.Conditions)
	if progress != (snapshots.Status{}) {
		status.Snapshots = ptr.To(v1alpha1.SnapshotScheduleStatus(progress))
	}
	switch {
	case errors.Is(err, kube.ErrNotOwned):
		return takenRetry
	case err != nil:
		return serviceRetry
	case due == nil || due.Again.IsZero():
		return 0
	}
	return max(due.Again.Sub(p.now), time.Second)
}

// hasNewSchedule reports whether the progress of spec.snapshots has changed, or the reason of its condition.
func hasNewSchedule(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus) bool {
	was, is := kube.ConditionTransition(vm.Status.Conditions, status.Conditions, v1alpha1.ConditionSnapshotsUpToDate)
	return was.Reason != is.Reason || !equality.Semantic.DeepEqual(vm.Status.Snapshots, status.Snapshots)
}

// actOnSchedule carries out what is due.
func (r *Reconciler) actOnSchedule(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, of snapshots.Of, now time.Time) (*snapshots.Plan, error) {
	store := r.scheduled(vm, observed)
	made, err := store.Observe(ctx, of)
	if err != nil {
		return nil, &snapshots.Error{Err: err}
	}
	due := snapshots.Decide(of, made, now)
	return due, store.Act(ctx, of, due)
}

// newSnapshotSchedule returns the schedule of a machine with spec.snapshots.
func newSnapshotSchedule(vm *v1alpha1.VirtualMachine) snapshots.Of {
	spec := vm.Spec.Snapshots
	return snapshots.Of{
		Object: vm, Kind: "VirtualMachineSnapshot",
		Spec:   snapshots.Spec{Schedule: spec.Schedule, TimeZone: spec.TimeZone, Keep: spec.Keep, Suspend: spec.Suspend},
		Status: snapshots.Status(ptr.Deref(vm.Status.Snapshots, v1alpha1.SnapshotScheduleStatus{})),
	}
}

// whyNoSnapshots returns why no snapshots of a machine are made now; nil if they are. A machine that is off or asleep has disks,
// too.
func whyNoSnapshots(observed observation, status *v1alpha1.VirtualMachineStatus) *metav1.Condition {
	switch {
	case observed.driver != nil && storeOf[backend.SnapshotStore](observed.driver) == nil:
		return &metav1.Condition{Reason: v1alpha1.ReasonInvalidSpec, Message: fmt.Sprintf(
			"No snapshots are made: the driver %s takes none. Remove spec.snapshots, or use the driver qemu or pod", observed.name)}
	case status.Server == nil:
		return &metav1.Condition{Reason: v1alpha1.ReasonMachineNotCreated, Message: "No snapshots are made until the machine has its disks"}
	}
	return nil
}

// scheduled returns the VirtualMachineSnapshots of the schedule of a machine.
func (r *Reconciler) scheduled(vm *v1alpha1.VirtualMachine, observed observation) snapshots.Store[*v1alpha1.VirtualMachineSnapshot] {
	return snapshots.Store[*v1alpha1.VirtualMachineSnapshot]{
		Client: r.client, Live: r.live, Kind: "VirtualMachineSnapshot", By: v1alpha1.LabelScheduledBy,
		Empty: func() *v1alpha1.VirtualMachineSnapshot { return &v1alpha1.VirtualMachineSnapshot{} },
		List: func(ctx context.Context, options ...client.ListOption) (all []*v1alpha1.VirtualMachineSnapshot, err error) {
			var list v1alpha1.VirtualMachineSnapshotList
			err = r.client.List(ctx, &list, options...)
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			return all, err
		},
		View: func(s *v1alpha1.VirtualMachineSnapshot) snapshots.Snapshot {
			return snapshots.Snapshot{Object: s, TakenAt: s.Status.TakenAt, Ready: meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)}
		},
		New:   func(at time.Time) *v1alpha1.VirtualMachineSnapshot { return newScheduled(vm, at) },
		Check: func(ctx context.Context) error { return r.confirmStillWanted(ctx, vm, observed) },
		IsSource: func(ctx context.Context, object client.Object) (bool, error) {
			s, ok := object.(*v1alpha1.VirtualMachineSnapshot)
			if !ok {
				return false, nil
			}
			machines, err := listUsers(ctx, r.client, s)
			return slices.ContainsFunc(machines, func(m v1alpha1.VirtualMachine) bool { return needsSnapshot(&m, s) }), err
		},
	}
}

// newScheduled returns the VirtualMachineSnapshot for a scheduled time. It has no owner reference, because it outlives the machine.
func newScheduled(vm *v1alpha1.VirtualMachine, at time.Time) *v1alpha1.VirtualMachineSnapshot {
	return &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: snapshots.NameOf(vm.Name, at),
			Labels:      map[string]string{v1alpha1.LabelScheduledBy: string(vm.UID)},
			Annotations: map[string]string{v1alpha1.AnnotationScheduledAt: at.UTC().Format(time.RFC3339)},
		},
		Spec: v1alpha1.VirtualMachineSnapshotSpec{
			VirtualMachineName: vm.Name, Memory: vm.Spec.Snapshots.Memory, AllowedNamespaces: slices.Clone(vm.Spec.Snapshots.AllowedNamespaces),
		},
	}
}
