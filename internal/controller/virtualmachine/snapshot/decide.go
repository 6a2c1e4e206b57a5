package snapshot

import (
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
)

// Finalizer implements external.Kind.
func (*Reconciler) Finalizer() string { return v1alpha1.SnapshotFinalizer }

// Facts implements external.Kind. A snapshot that has gone is not taken again: that would be another one.
func (*Reconciler) Facts(s *v1alpha1.VirtualMachineSnapshot, seen observation) external.Facts {
	f := external.Facts{
		Conditions: s.Status.Conditions, IsRecorded: s.Status.Host != nil, IsElsewhere: seen.elsewhere != nil, Err: seen.err, IsLost: s.Status.TakenAt != nil,
	}
	if state := seen.state; state != nil {
		f.Exists, f.IsMade, f.IsLost = true, state.Taken && state.Lost == "", state.Taken && state.Lost != ""
		f.IsBusy, f.Failure, f.FailedAt = state.Busy, state.Failure, state.FailedAt
	}
	f.Lacks = !f.IsMade && !f.IsLost && (isMachineGone(seen) || seen.store == nil)
	return f
}

// isMachineGone reports whether there is no machine to take a snapshot of.
func isMachineGone(seen observation) bool {
	return seen.machine == nil || !seen.machine.DeletionTimestamp.IsZero()
}
