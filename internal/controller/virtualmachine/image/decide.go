package image

import (
	"errors"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
)

// Finalizer implements external.Kind.
func (*Reconciler) Finalizer() string { return v1alpha1.ImageFinalizer }

// Facts implements external.Kind. An image is not bound to a host: each manager imports it, and one without a driver has nothing to
// remove.
func (*Reconciler) Facts(image *v1alpha1.VirtualMachineImage, seen observation) external.Facts {
	f := external.Facts{
		Conditions: image.Status.Conditions, IsRecorded: true, IsUsed: len(seen.users) > 0, Err: seen.err,
	}
	if image.DeletionTimestamp != nil && errors.Is(f.Err, backend.ErrMissing) {
		f.Err = nil
	}
	if state := seen.state; state != nil {
		f.Exists, f.Failure, f.FailedAt = true, state.Failure, state.FailedAt
		f.IsMade, f.IsBusy = state.Ready && state.Failure == nil, !state.Ready && state.Failure == nil
	}
	return f
}
