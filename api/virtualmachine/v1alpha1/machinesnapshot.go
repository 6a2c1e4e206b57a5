package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SnapshotFinalizer is the finalizer of a VirtualMachineSnapshot. It remains as long as the snapshot may have files.
const SnapshotFinalizer = "cloudnative.tw/snapshot"

// RootDiskName is the name of the root disk in the status of a VirtualMachineSnapshot.
const RootDiskName = "root"

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualmachinesnapshots,shortName=vmsnap;vmsnaps,categories=keelson
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.virtualMachineName`,description="VirtualMachine whose disks the snapshot has"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the snapshot is taken"
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`,description="Space that the snapshot uses on the host"
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.takenAt`,description="When the snapshot was taken"
// +kubebuilder:printcolumn:name="Memory",type=string,priority=1,JSONPath=`.status.memorySize`,description="Space of the saved memory"
// +kubebuilder:printcolumn:name="Disks",type=string,priority=1,JSONPath=`.status.disks[*].name`,description="Disks in the snapshot"
// +kubebuilder:printcolumn:name="Quiesced",type=boolean,priority=1,JSONPath=`.status.quiesced`,description="Whether the file systems of the guest were frozen"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:printcolumn:name="Host",type=string,priority=1,JSONPath=`.status.host.name`,description="Host that has the snapshot"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VirtualMachineSnapshot is a copy of the disks of a VirtualMachine at one moment, and of its
// memory if spec.memory is true. It is taken once, also while the machine runs, and kept when
// the machine is deleted. A new machine is created from it with spec.image.snapshot.
type VirtualMachineSnapshot struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The snapshot to take.
	// +required
	Spec VirtualMachineSnapshotSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status VirtualMachineSnapshotStatus `json:"status,omitempty"`
}

// VirtualMachineSnapshotSpec is the snapshot to take.
// +kubebuilder:validation:XValidation:rule="(has(self.memory) && self.memory) == (has(oldSelf.memory) && oldSelf.memory)",fieldPath=".memory",message="cannot be changed: a snapshot is taken once. Create another VirtualMachineSnapshot"
type VirtualMachineSnapshotSpec struct {
	// Name of a VirtualMachine of the same namespace. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: a snapshot is taken once. Create another VirtualMachineSnapshot"
	VirtualMachineName string `json:"virtualMachineName"`

	// Whether the snapshot also contains the memory of the machine, which must run or be asleep.
	// The machine is halted while its memory is saved. A machine that is restored from the
	// snapshot, or created from it, does not boot: it resumes at the moment of the snapshot. A
	// snapshot of a schedule contains only the disks if the machine is off. Immutable.
	// +optional
	Memory bool `json:"memory,omitempty"`

	// Names of other namespaces whose VirtualMachines can be created from the snapshot, with
	// spec.image.snapshotNamespace. Users who can create VirtualMachines there can
	// read the content of the snapshot. Removing a namespace does not affect machines that
	// were already created.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
}

// VirtualMachineSnapshotStatus is the observed state of a snapshot.
type VirtualMachineSnapshotStatus struct {
	// Host that has the snapshot.
	// +optional
	Host *Host `json:"host,omitempty"`

	// When the snapshot was taken: the disks and the memory are as they were then.
	// +optional
	TakenAt *metav1.Time `json:"takenAt,omitempty"`

	// Space in bytes that the snapshot uses on the host, without the image of the machine.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// Space in bytes of the saved memory, which is a part of size. Empty if the snapshot has no
	// memory.
	// +optional
	MemorySize *resource.Quantity `json:"memorySize,omitempty"`

	// Whether the guest agent had frozen the file systems of the guest at that moment: what was
	// written to them is in the snapshot, and they need no recovery.
	// +optional
	Quiesced bool `json:"quiesced,omitempty"`

	// Disks in the snapshot: root, and those of spec.disks of the machine that are no
	// VirtualDisks.
	// +optional
	// +listType=map
	// +listMapKey=name
	Disks []SnapshotDisk `json:"disks,omitempty"`

	// Generation of the VirtualMachineSnapshot that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the snapshot. Ready is True if it is taken.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// SnapshotDisk is a disk in a snapshot.
type SnapshotDisk struct {
	// Name of the disk.
	// +required
	Name string `json:"name"`

	// Size of the disk in bytes, as seen by a guest.
	// +optional
	Size resource.Quantity `json:"size,omitzero"`
}

// +kubebuilder:object:root=true

// VirtualMachineSnapshotList is a list of VirtualMachineSnapshots.
type VirtualMachineSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The VirtualMachineSnapshots.
	Items []VirtualMachineSnapshot `json:"items"`
}
