package virtualmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// observeScheduled reads the VirtualMachineSnapshots that spec.snapshots has made.
func (r *Reconciler) observeScheduled(ctx context.Context, vm *v1alpha1.VirtualMachine, observed *observation) (err error) {
	if vm.Spec.Snapshots != nil && vm.DeletionTimestamp.IsZero() {
		observed.scheduled, err = r.scheduled(vm, *observed).Observe(ctx, newSchedule(vm, *observed))
	}
	return err
}

// summarizeSnapshots sets or removes what the status has about spec.snapshots, given the error of making and deleting them.
func summarizeSnapshots(vm *v1alpha1.VirtualMachine, observed observation, p plan, err error, status *v1alpha1.VirtualMachineStatus) {
	status.Snapshots = nil
	if vm.Spec.Snapshots == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSnapshotsUpToDate)
		return
	}
	progress := snapshots.Summarize(newSchedule(vm, observed), p.schedule, err, p.now, &status.Conditions)
	if progress != (commonv1.SnapshotScheduleStatus{}) {
		status.Snapshots = &progress
	}
}

// hasNewSchedule reports whether the progress of spec.snapshots has changed, or the reason of its condition.
func hasNewSchedule(vm *v1alpha1.VirtualMachine, status *v1alpha1.VirtualMachineStatus) bool {
	was, is := kube.ConditionTransition(vm.Status.Conditions, status.Conditions, v1alpha1.ConditionSnapshotsUpToDate)
	return was.Reason != is.Reason || !equality.Semantic.DeepEqual(vm.Status.Snapshots, status.Snapshots)
}

// newSchedule returns the schedule of a machine with spec.snapshots. One that is off or asleep has disks, too.
func newSchedule(vm *v1alpha1.VirtualMachine, observed observation) snapshots.Of {
	spec, server := vm.Spec.Snapshots, observed.server
	of := snapshots.Of{
		Object: vm, Kind: "VirtualMachineSnapshot",
		Spec:   spec.SnapshotSchedule,
		Status: ptr.Deref(vm.Status.Snapshots, commonv1.SnapshotScheduleStatus{}),
	}
	switch {
	case observed.driver != nil && storeOf[backend.SnapshotStore](observed.driver) == nil:
		of.Idle = &metav1.Condition{Reason: v1alpha1.ReasonInvalidSpec, Message: fmt.Sprintf(
			"No snapshots are made: the driver %s takes none. Remove spec.snapshots, or use the driver qemu or pod", observed.name)}
	case server != nil && server.State == backend.StateAbsent, server == nil && (observed.err == nil || vm.Status.Server == nil):
		of.Idle = &metav1.Condition{Reason: v1alpha1.ReasonMachineNotCreated, Message: "No snapshots are made until the machine has its disks"}
	}
	return of
}

// scheduled returns the VirtualMachineSnapshots of the schedule of a machine.
func (r *Reconciler) scheduled(vm *v1alpha1.VirtualMachine, observed observation) snapshots.Store[*v1alpha1.VirtualMachineSnapshot] {
	return snapshots.Store[*v1alpha1.VirtualMachineSnapshot]{
		Client: r.Client, Live: r.Live, Kind: "VirtualMachineSnapshot", By: v1alpha1.LabelScheduledBy,
		Empty: func() *v1alpha1.VirtualMachineSnapshot { return &v1alpha1.VirtualMachineSnapshot{} },
		List: func(ctx context.Context, options ...client.ListOption) (all []*v1alpha1.VirtualMachineSnapshot, err error) {
			var list v1alpha1.VirtualMachineSnapshotList
			err = r.Client.List(ctx, &list, options...)
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
			machines, err := listUsers(ctx, r.Client, s)
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
