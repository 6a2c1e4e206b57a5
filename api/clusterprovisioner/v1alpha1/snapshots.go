package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// LabelScheduledBy is the label of a ClusterSnapshot that spec.snapshots of a Cluster made: the UID of that Cluster.
	LabelScheduledBy = GroupName + "/scheduled-by"
	// AnnotationScheduledAt is an annotation of such a ClusterSnapshot: the scheduled time.
	AnnotationScheduledAt = GroupName + "/scheduled-at"

	// LabelRestoreOf is the label of a ClusterSnapshot that was made before a restore of a Cluster: the UID of that Cluster.
	LabelRestoreOf = GroupName + "/before-restore-of"

	// LabelRehearsalOf is the label of the Cluster and the ClusterSnapshot of `keelson cluster rehearse`: the UID of the Cluster whose
	// upgrade is rehearsed.
	LabelRehearsalOf = GroupName + "/rehearsal-of"

	// DefaultSnapshotsKept is the default of spec.snapshots.keep.
	DefaultSnapshotsKept = 7
)

// SnapshotSchedule says when ClusterSnapshots of a Cluster are made, and how many are kept.
type SnapshotSchedule struct {
	// Schedule in cron format, such as "0 3 * * *" or "@daily", as in a CronTab. A
	// snapshot is left out if the cluster is stopped, or if the one before is not taken
	// yet. Of the times that were missed while no manager ran, the last one counts.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Schedule string `json:"schedule"`

	// IANA time zone of the schedule, such as Europe/Berlin. The default is UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// Number of snapshots of this schedule that are kept. Older ones are deleted after
	// a newer one is taken. Other ClusterSnapshots are not deleted. The default is 7.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Keep *int32 `json:"keep,omitempty"`

	// Make no snapshots while this is true. Those that exist are kept.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SnapshotScheduleStatus is the progress of spec.snapshots.
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

	// Name of the last ClusterSnapshot.
	// +optional
	LastSnapshot string `json:"lastSnapshot,omitempty"`

	// Next scheduled time.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
}

// ClusterRestore is a request to replace all objects of a cluster by those of a snapshot.
// +kubebuilder:validation:XValidation:rule="self.requestedAt != oldSelf.requestedAt || self.snapshot == oldSelf.snapshot",message="a restore is done once: change spec.restore.requestedAt, too, to request another one"
type ClusterRestore struct {
	// Name of a ClusterSnapshot of this Cluster. For one of another Cluster, use
	// spec.from of a new Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Snapshot string `json:"snapshot"`

	// Time of the request, usually the current time. The cluster is restored once for
	// each new value.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Whether a ClusterSnapshot of the present state is made first, so that the restore
	// can be undone. Without it, a cluster that does not run can be restored, too. The
	// default is true.
	// +optional
	KeepCurrent *bool `json:"keepCurrent,omitempty"`
}

// RestoreResult is the result of a restore.
// +enum
type RestoreResult string

const (
	// RestoreSucceeded means that the cluster has the objects of the snapshot.
	RestoreSucceeded RestoreResult = "Succeeded"
	// RestoreFailed means that the cluster has the objects that it had before.
	RestoreFailed RestoreResult = "Failed"
)

// ClusterRestoreStatus is the last restore that has ended.
type ClusterRestoreStatus struct {
	// Value of spec.restore.requestedAt for this restore.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Name of the ClusterSnapshot.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// Name of the ClusterSnapshot of the state before.
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
