package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LabelRestoreOf is the label of a VirtualMachineSnapshot that was made before a restore of a VirtualMachine: the UID of that
// VirtualMachine.
const LabelRestoreOf = GroupName + "/before-restore-of"

// VirtualMachineRestore is a request to replace the disks of a machine by those of a snapshot.
// +kubebuilder:validation:XValidation:rule="self.requestedAt != oldSelf.requestedAt || self.snapshot == oldSelf.snapshot",message="a restore is done once: change spec.restore.requestedAt, too, to request another one"
type VirtualMachineRestore struct {
	// Name of a VirtualMachineSnapshot of this VirtualMachine. For one of another
	// VirtualMachine, use spec.image.snapshot of a new VirtualMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Snapshot string `json:"snapshot"`

	// Time of the request, usually the current time. The machine is restored once for
	// each new value.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Whether a VirtualMachineSnapshot of the present disks is made first, so that the
	// restore can be undone. The default is true.
	// +optional
	KeepCurrent *bool `json:"keepCurrent,omitempty"`
}

// RestoreResult is the result of a restore.
// +enum
type RestoreResult string

const (
	// RestoreSucceeded means that the machine has the disks of the snapshot.
	RestoreSucceeded RestoreResult = "Succeeded"
	// RestoreFailed means that the machine has the disks that it had before.
	RestoreFailed RestoreResult = "Failed"
)

// VirtualMachineRestoreStatus is the last restore that has ended.
type VirtualMachineRestoreStatus struct {
	// Value of spec.restore.requestedAt for this restore.
	// +required
	RequestedAt metav1.Time `json:"requestedAt"`

	// Name of the VirtualMachineSnapshot.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// Name of the VirtualMachineSnapshot of the disks before.
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
