package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TimeZone is the name of a time zone in the IANA database.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
type TimeZone string

// DefaultSnapshotsKept is the default of keep of a SnapshotSchedule.
const DefaultSnapshotsKept = 7

// SnapshotSchedule says when snapshots of an object are made, and how many are kept.
type SnapshotSchedule struct {
	// Schedule in cron format, such as "0 3 * * *" or "@daily", as in a CronTab. No snapshot
	// is made while the cluster is stopped, or while the machine has no disks, or if the
	// previous snapshot is not taken yet. Of the times that were missed while no manager
	// ran, the last one counts.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Schedule string `json:"schedule"`

	// IANA time zone of the schedule, such as Europe/Berlin. The default is UTC.
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`

	// Number of snapshots of this schedule that are kept. Older ones are deleted after a
	// newer one is taken. Other snapshots are not deleted. The default is 7.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Keep *int32 `json:"keep,omitempty"`

	// Make no snapshots while this is true. Those that exist are kept.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SnapshotScheduleStatus is the progress of a SnapshotSchedule.
type SnapshotScheduleStatus struct {
	// Schedule and time zone to which the times belong. Empty while suspended.
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// All scheduled times up to this one have a snapshot or were left out.
	// +optional
	DecidedUntil *metav1.Time `json:"decidedUntil,omitempty"`

	// Scheduled time of the last snapshot.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// Name of the last snapshot.
	// +optional
	LastSnapshot string `json:"lastSnapshot,omitempty"`

	// Next scheduled time.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
}

// Restore is a request to replace the content of an object by that of one of its snapshots.
//
// +kubebuilder:validation:XValidation:rule="self.requestedAt != oldSelf.requestedAt || self.snapshot == oldSelf.snapshot",message="a restore is done once: change spec.restore.requestedAt, too, to request another one"
type Restore struct {
	// Name of a snapshot of this object: a VirtualMachineSnapshot or a ClusterSnapshot. With
	// a snapshot of another object, create a new object from it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Snapshot string `json:"snapshot"`

	// Time of the request, usually the current time. The object is restored once for each
	// new value.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Whether a snapshot of the current state is taken first, so that the restore can be
	// undone. A cluster that does not run can be restored only without it. The default is
	// true.
	// +optional
	KeepCurrent *bool `json:"keepCurrent,omitempty"`
}

// RestoreResult is the result of a restore.
type RestoreResult string

const (
	// RestoreSucceeded means that the object has the content of the snapshot.
	RestoreSucceeded RestoreResult = "Succeeded"
	// RestoreFailed means that the object has the content that it had before.
	RestoreFailed RestoreResult = "Failed"
)

// RestoreStatus is the last restore that has ended.
type RestoreStatus struct {
	// Value of spec.restore.requestedAt for this restore.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Name of the snapshot.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// Name of the snapshot of the previous state.
	// +optional
	Previous string `json:"previous,omitempty"`

	// Result of the restore: Succeeded or Failed.
	// +optional
	Result RestoreResult `json:"result,omitempty"`

	// Cause of a failure.
	// +optional
	Message string `json:"message,omitempty"`

	// When the restore ended.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}
