package snapshot

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Summarize implements external.Kind.
func (*Reconciler) Summarize(s *v1alpha1.VirtualMachineSnapshot, seen observation, p external.Plan, actErr error) *v1alpha1.VirtualMachineSnapshot {
	after := s.DeepCopy()
	status := &after.Status
	status.ObservedGeneration = s.Generation
	if p.Action == external.Claim && actErr == nil || seen.state != nil {
		status.Host = &seen.host
	}
	if state := seen.state; state != nil && state.Taken && state.Lost == "" {
		at := metav1.NewTime(state.TakenAt.UTC().Truncate(time.Second))
		status.TakenAt, status.Size, status.Disks = &at, resource.NewQuantity(state.AllocatedBytes, resource.BinarySI), nil
		status.Quiesced = state.Quiesced
		if state.MemoryBytes > 0 {
			status.MemorySize = resource.NewQuantity(state.MemoryBytes, resource.BinarySI)
		}
		for _, disk := range state.Disks {
			status.Disks = append(status.Disks, v1alpha1.SnapshotDisk{Name: disk.Name, Size: *resource.NewQuantity(disk.VirtualBytes, resource.BinarySI)})
		}
	}
	ready := summarizeReady(s, seen, p, actErr)
	kube.SetConditions(s, &status.Conditions, p.Now, ready)
	return after
}

// summarizeReady returns the condition Ready.
func summarizeReady(s *v1alpha1.VirtualMachineSnapshot, seen observation, p external.Plan, actErr error) metav1.Condition {
	name, err := s.Spec.VirtualMachineName, actErr
	if err == nil {
		err = seen.err
	}
	switch {
	case !s.DeletionTimestamp.IsZero() && p.Action == external.Refuse:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonTerminating, "%s", external.DescribeHosts("The snapshot or its machine", seen.elsewhere, seen.host, s, "vmsnap"))
	case !s.DeletionTimestamp.IsZero() && errors.Is(err, backend.ErrInProgress):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonTerminating, "The deletion waits: %v", err)
	case !s.DeletionTimestamp.IsZero() && err != nil:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonTerminating, "%v. Keelson retries", err)
	case errors.Is(err, backend.ErrUnavailable):
		return external.NewCondition(metav1.ConditionUnknown, v1alpha1.ReasonBackendUnavailable, "The state of the snapshot is unknown: %v. Keelson retries", err)
	case errors.Is(err, backend.ErrMissing):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonDriverMissing, "%v", err)
	case errors.Is(err, backend.ErrNoDisks), errors.Is(err, backend.ErrInvalid):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "%v", err)
	case p.Action == external.Await && !isMachineGone(seen), errors.Is(err, backend.ErrNotFound), errors.Is(err, backend.ErrNotCreated):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonMachineNotCreated, "The machine %s has no disks yet: the snapshot is taken when it has", name)
	case errors.Is(err, backend.ErrNotRunning):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonMachineNotRunning, "The machine %s is off, so that it has no memory: start it, or create a VirtualMachineSnapshot without memory", name)
	case err != nil && !kube.IsStale(err):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed, "%v. Keelson retries", err)
	case p.Action == external.BackOff:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed, "%v. The next attempt is at %s", seen.state.Failure, p.NextAttempt.UTC().Format(time.RFC3339))
	case p.Action == external.Refuse:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonOnAnotherHost, "%s", external.DescribeHosts("The snapshot or its machine", seen.elsewhere, seen.host, s, "vmsnap"))
	case p.Action == external.Await:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonMachineMissing, "There is no VirtualMachine %s in this namespace: create it, or delete this VirtualMachineSnapshot", name)
	case p.Action == external.Lost && seen.state == nil:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotLost, "The snapshot is gone: restore the state directory of the manager, with the driver pod its PersistentVolumeClaim, or delete the VirtualMachineSnapshot")
	case p.Action == external.Lost:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotLost, "%s", seen.state.Lost)
	case p.Action == external.Keep:
		return external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonSnapshotTaken, "The snapshot of the machine %s is taken. Create new machines from it with spec.image.snapshot", name)
	case seen.state != nil && seen.state.Progress != "":
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotInProgress, "%s", seen.state.Progress)
	}
	return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotInProgress, "The snapshot is being taken")
}

// Reports implements external.Kind.
func (*Reconciler) Reports() external.Reports {
	return external.Reports{
		Verb:  "Take",
		Quiet: []string{v1alpha1.ReasonSnapshotInProgress, v1alpha1.ReasonMachineNotCreated, v1alpha1.ReasonTerminating},
		Waits: []error{backend.ErrInProgress, backend.ErrNotFound, backend.ErrNotCreated, backend.ErrNotRunning, backend.ErrNoDisks},
	}
}
