package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// LabelScheduledBy is the label of a VirtualMachineSnapshot that spec.snapshots of a VirtualMachine made: the UID of that
	// VirtualMachine.
	LabelScheduledBy = GroupName + "/scheduled-by"
	// AnnotationScheduledAt is an annotation of such a VirtualMachineSnapshot: the scheduled time.
	AnnotationScheduledAt = GroupName + "/scheduled-at"

	// DefaultSnapshotsKept is the default of spec.snapshots.keep.
	DefaultSnapshotsKept = 7
)

// SnapshotSchedule says when VirtualMachineSnapshots of a VirtualMachine are made, and how many are kept.
type SnapshotSchedule struct {
	// Schedule in cron format, such as "0 3 * * *" or "@daily", as in a CronTab. A
	// snapshot is left out if the machine has no disks yet, or if the one before is not
	// taken yet. Of the times that were missed while no manager ran, the last one counts.
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
	// a newer one is taken. Other VirtualMachineSnapshots are not deleted. The default is 7.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Keep *int32 `json:"keep,omitempty"`

	// Whether the snapshots also have the memory of the machine. One of a machine that is off
	// has its disks only. The default is false.
	// +optional
	Memory bool `json:"memory,omitempty"`

	// Names of other namespaces whose VirtualMachines may be made of the snapshots, as in
	// allowedNamespaces of a VirtualMachineSnapshot. A change is for later snapshots only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`

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

	// Name of the last VirtualMachineSnapshot.
	// +optional
	LastSnapshot string `json:"lastSnapshot,omitempty"`

	// Next scheduled time.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
}
