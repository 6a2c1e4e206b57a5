package v1alpha1

import commonv1 "github.com/keelson-dev/keelson/api/common/v1"

const (
	// LabelScheduledBy is the label of a VirtualMachineSnapshot that spec.snapshots of a VirtualMachine made: the UID of that
	// VirtualMachine.
	LabelScheduledBy = GroupName + "/scheduled-by"
	// AnnotationScheduledAt is an annotation of such a VirtualMachineSnapshot: the scheduled time.
	AnnotationScheduledAt = GroupName + "/scheduled-at"
)

// SnapshotSchedule says when VirtualMachineSnapshots of a VirtualMachine are made, and how many are kept.
type SnapshotSchedule struct {
	commonv1.SnapshotSchedule `json:",inline"`

	// Whether the snapshots also have the memory of the machine. One of a machine that is off
	// has its disks only. The default is false.
	// +optional
	Memory bool `json:"memory,omitempty"`

	// Names of other namespaces whose VirtualMachines can be created from the snapshots, as in
	// allowedNamespaces of a VirtualMachineSnapshot. A change is for later snapshots only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
}
