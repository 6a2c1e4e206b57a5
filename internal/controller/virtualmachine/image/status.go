package image

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/names"
)

// Summarize implements external.Kind.
func (*Reconciler) Summarize(image *v1alpha1.VirtualMachineImage, seen observation, p external.Plan, actErr error) *v1alpha1.VirtualMachineImage {
	after := image.DeepCopy()
	status := &after.Status
	status.ObservedGeneration = image.Generation
	status.Users = int32(min(len(seen.users), 1<<30)) //nolint:gosec // bounded
	wasHere := status.Host != nil && *status.Host == seen.host
	if p.Action == external.Claim || p.Action == external.Ensure || seen.state != nil {
		status.Host = &seen.host
	}
	if p.Action == external.Keep {
		status.Format = seen.state.Format
		status.Size, status.VirtualSize = mebibytes(seen.state.AllocatedBytes), mebibytes(seen.state.VirtualBytes)
	}
	ready := summarizeReady(seen, p, actErr)
	before := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case !image.DeletionTimestamp.IsZero():
		ready = external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonTerminating, "The image is being deleted: no new machine can use it")
	case ready.Reason == v1alpha1.ReasonImporting && wasHere && before != nil && before.Status == metav1.ConditionTrue &&
		(seen.state == nil || seen.state.Progress == ""):
		// A new manager looks for the file, and usually finds it.
		ready = *before
	}
	kube.SetConditions(image, &status.Conditions, p.Now, ready, summarizeDeleting(image, seen, p, actErr))
	return after
}

// mebibytes returns a number of bytes, rounded up to MiB.
func mebibytes(bytes int64) *resource.Quantity {
	const mebibyte = 1 << 20
	return resource.NewQuantity((bytes+mebibyte-1)/mebibyte*mebibyte, resource.BinarySI)
}

// summarizeReady returns the condition Ready of an image that is not being deleted.
func summarizeReady(seen observation, p external.Plan, actErr error) metav1.Condition {
	err := actErr
	if err == nil {
		err = seen.err
	}
	switch {
	case errors.Is(err, backend.ErrInvalid):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, "%v", err)
	case errors.Is(err, backend.ErrMissing):
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonDriverMissing, "%v", err)
	case errors.Is(err, backend.ErrUnavailable):
		return external.NewCondition(metav1.ConditionUnknown, v1alpha1.ReasonBackendUnavailable, "The state of the image is unknown: %v. Keelson retries", err)
	case err != nil:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonImportFailed, "%v. Keelson retries", err)
	}
	switch {
	case p.Action == external.BackOff:
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonImportFailed, "%v. The next attempt is at %s",
			seen.state.Failure, p.NextAttempt.UTC().Format(time.RFC3339))
	case p.Action == external.Keep:
		return external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonImported, "Machines can use the image: spec.image.name")
	case p.Action == external.Wait && seen.state.Progress != "":
		return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonImporting, "%s", seen.state.Progress)
	}
	return external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonImporting, "The image is being imported")
}

// summarizeDeleting returns the condition Deleting.
func summarizeDeleting(image *v1alpha1.VirtualMachineImage, seen observation, p external.Plan, actErr error) metav1.Condition {
	deleting := external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonNotDeleting, "The image is not being deleted")
	switch {
	case image.DeletionTimestamp.IsZero():
	case p.Action == external.InUse:
		deleting = external.NewCondition(metav1.ConditionFalse, v1alpha1.ReasonInUse, "The deletion waits until no machine names the image: %s", names.Some(seen.users))
	case actErr != nil:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "%v. Keelson retries", actErr)
	case seen.err != nil:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "The deletion waits for the driver: %v", seen.err)
	default:
		deleting = external.NewCondition(metav1.ConditionTrue, v1alpha1.ReasonRemoving, "The image is being removed")
	}
	deleting.Type = v1alpha1.ConditionDeleting
	return deleting
}

// Reports implements external.Kind.
func (*Reconciler) Reports() external.Reports {
	return external.Reports{Verb: "Import", Quiet: []string{v1alpha1.ReasonImporting, v1alpha1.ReasonTerminating}}
}
