package disk

import (
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
)

// Finalizer implements external.Kind.
func (*Reconciler) Finalizer() string { return v1alpha1.DiskFinalizer }

// Facts implements external.Kind. A disk that has gone is not replaced by an empty one.
func (*Reconciler) Facts(disk *v1alpha1.VirtualDisk, seen observation) external.Facts {
	f := external.Facts{
		Conditions: disk.Status.Conditions, IsRecorded: disk.Status.Host != nil, IsElsewhere: seen.elsewhere, Err: seen.err, IsLost: disk.Status.Size != nil,
	}
	if state := seen.state; state != nil {
		f.Exists, f.IsLost, f.IsBusy, f.Failure, f.FailedAt = true, state.Lost != "", state.Busy, state.Failure, state.FailedAt
		f.IsMade = state.Created && state.SizeBytes >= sizeOf(disk) && !state.Busy && state.Failure == nil
	}
	return f
}

// sizeOf returns spec.size in bytes, 0 if it is not set.
func sizeOf(disk *v1alpha1.VirtualDisk) int64 {
	if disk.Spec.Size == nil {
		return 0
	}
	return disk.Spec.Size.Value()
}
