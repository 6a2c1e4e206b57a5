package disk

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/kube"
)

// allocatedStep is the part of the size of a disk that a change of its allocated space must have to be written to the status.
const allocatedStep = 20

// Summarize implements external.Kind.
func (*Reconciler) Summarize(disk *v1alpha1.VirtualDisk, seen observation, p external.Plan, actErr error) *v1alpha1.VirtualDisk {
	after := disk.DeepCopy()
	status := &after.Status
	status.ObservedGeneration = disk.Generation
	if p.Action == external.Claim && actErr == nil || seen.state != nil {
		status.Host = &seen.host
	}
	if state := seen.state; state != nil {
		status.AttachedTo = ""
		if state.AttachedTo != nil {
			status.AttachedTo = state.AttachedTo.Name
		}
		if state.Created && state.Lost == "" {
			status.Size = resource.NewQuantity(state.SizeBytes, resource.BinarySI)
			status.Allocated = allocated(status.Allocated, state)
		}
	}
	ready := summarizeReady(disk, seen, p, actErr)
	if !disk.DeletionTimestamp.IsZero() {
		ready = external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonTerminating, "The disk is being deleted")
	}
	kube.SetConditions(disk, &status.Conditions, p.Now, ready, summarizeDeleting(disk, seen, p, actErr))
	return after
}

// allocated returns the allocated space, rounded up to MiB; the one that was reported if it has not changed much.
func allocated(before *resource.Quantity, state *backend.DiskState) *resource.Quantity {
	const mebibyte = 1 << 20
	now := (state.AllocatedBytes + mebibyte - 1) / mebibyte * mebibyte
	if before != nil && max(now-before.Value(), before.Value()-now) < max(state.SizeBytes/allocatedStep, mebibyte) {
		return before
	}
	return resource.NewQuantity(now, resource.BinarySI)
}

// failureReasons are the reasons of Ready for errors of a driver and of images.
var failureReasons = []struct {
	err    error
	reason string
}{
	{backend.ErrInvalid, v1alpha1.ReasonInvalidSpec},
	{backend.ErrMissing, v1alpha1.ReasonDriverMissing},
	{image.ErrMissing, v1alpha1.ReasonImageMissing},
	{image.ErrNotReady, v1alpha1.ReasonImageNotReady},
	{backend.ErrSourceMissing, v1alpha1.ReasonSourceMissing},
	{backend.ErrSourceNotReady, v1alpha1.ReasonSourceNotReady},
	{backend.ErrSourceInUse, v1alpha1.ReasonSourceInUse},
}

// summarizeReady returns the condition Ready of a disk that is not being deleted.
func summarizeReady(disk *v1alpha1.VirtualDisk, seen observation, p external.Plan, actErr error) metav1.Condition {
	err := actErr
	if err == nil {
		err = seen.err
	}
	if errors.Is(err, backend.ErrUnavailable) {
		return external.NewCondition(metav1.ConditionUnknown, v1alpha1.ReasonBackendUnavailable, "The state of the disk is unknown: %v. Keelson retries", err)
	}
	for _, known := range failureReasons {
		if errors.Is(err, known.err) {
			return external.NewCondition(metav1.ConditionFalse, known.reason, "%v", err)
		}
	}
	created := seen.state != nil && seen.state.Created
	failed := v1alpha1.ReasonCreateFailed
	if created {
		failed = v1alpha1.ReasonGrowFailed
	}
	switch {
	case err != nil && !kube.IsStale(err):
		return external.NewCondition(metav1.ConditionFalse, failed, "%v. Keelson retries", err)
	case p.Action == external.BackOff:
		return external.NewCondition(metav1.ConditionFalse, failed, "%v. The next attempt is at %s", seen.state.Failure, p.NextAttempt.UTC().Format(time.RFC3339))
	case p.Action == external.Refuse:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonOnAnotherHost, "%s", external.DescribeHosts("The disk", disk.Status.Host, seen.host, disk, "vdisk"))
	case p.Action == external.Lost && seen.state == nil:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonDiskLost, "The host does not have the disk any more: restore the state directory of the manager, or delete the VirtualDisk")
	case p.Action == external.Lost:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonDiskLost, "%s", seen.state.Lost)
	case p.Action == external.Keep:
		return external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonDiskAvailable, "The disk is as specified. Attach it to a machine with spec.disks[].virtualDisk")
	case created && seen.state.AttachedTo != nil:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonGrowing, "The disk is being grown by the machine %s: see its condition DisksReady", seen.state.AttachedTo.Name)
	case created:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonGrowing, "The disk is being grown")
	case seen.state != nil && seen.state.Progress != "":
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonCreating, "%s", seen.state.Progress)
	}
	return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonCreating, "The disk is being created")
}

// summarizeDeleting returns the condition Deleting.
func summarizeDeleting(disk *v1alpha1.VirtualDisk, seen observation, p external.Plan, actErr error) metav1.Condition {
	deleting := external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonNotDeleting, "The disk is not being deleted")
	switch {
	case disk.DeletionTimestamp.IsZero():
	case errors.Is(actErr, backend.ErrDiskInUse):
		machine := ""
		if seen.state != nil && seen.state.AttachedTo != nil {
			machine = seen.state.AttachedTo.Name
		}
		deleting = external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonInUse,
			"The deletion waits until the machine %s lets the disk go: remove it from spec.disks there, or delete that machine", machine)
	case errors.Is(actErr, backend.ErrInProgress):
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "The deletion waits until the disk is not busy any more")
	case actErr != nil:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "%v. Keelson retries", actErr)
	case p.Action == external.Refuse:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "%s", external.DescribeHosts("The disk", disk.Status.Host, seen.host, disk, "vdisk"))
	case seen.err != nil:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "The deletion waits for the driver: %v", seen.err)
	default:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "The disk is being deleted")
	}
	deleting.Type = v1alpha1.ConditionDeleting
	return deleting
}

// Reports implements external.Kind.
func (*Reconciler) Reports() external.Reports {
	return external.Reports{
		Verb: "Create",
		Quiet: []string{
			v1alpha1.ReasonCreating, v1alpha1.ReasonGrowing, v1alpha1.ReasonTerminating, v1alpha1.ReasonSourceNotReady, v1alpha1.ReasonImageNotReady,
		},
		Waits: []error{
			backend.ErrSourceMissing, backend.ErrSourceNotReady, backend.ErrSourceInUse, backend.ErrDiskInUse, backend.ErrInProgress,
			image.ErrMissing, image.ErrNotReady,
		},
	}
}
