package image

import (
	"errors"
	"slices"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
)

// Finalizer implements external.Kind.
func (r *Reconciler) Finalizer() string { return v1alpha1.ImageFinalizer }

// Facts implements external.Kind.
func (r *Reconciler) Facts(image *v1alpha1.VirtualMachineImage, seen observation) external.Facts {
	return facts(image, seen)
}

// facts returns what is to be decided by. An image is not bound to a host: each manager imports it, and one without a driver has nothing to
// remove.
func facts(image *v1alpha1.VirtualMachineImage, seen observation) external.Facts {
	f := external.Facts{
		Conditions: image.Status.Conditions, IsDeleted: !image.DeletionTimestamp.IsZero(), IsClaimed: slices.Contains(image.Finalizers, v1alpha1.ImageFinalizer),
		IsRecorded: true, IsUsed: len(seen.users) > 0, Err: seen.err,
	}
	if f.IsDeleted && errors.Is(f.Err, backend.ErrMissing) {
		f.Err = nil
	}
	if state := seen.state; state != nil {
		f.Exists, f.Failure, f.FailedAt = true, state.Failure, state.FailedAt
		f.IsMade, f.IsBusy = state.Ready && state.Failure == nil, !state.Ready && state.Failure == nil
	}
	return f
}
