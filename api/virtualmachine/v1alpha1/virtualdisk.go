package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DiskFinalizer is the finalizer of a VirtualDisk. It remains as long as the disk has a file, or a machine.
const DiskFinalizer = "cloudnative.tw/disk"

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualdisks,shortName=vdisk;vdisks,categories=keelson
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`,description="Size of the disk, as seen by a guest"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the disk is as specified"
// +kubebuilder:printcolumn:name="Attached To",type=string,JSONPath=`.status.attachedTo`,description="VirtualMachine that has the disk"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:printcolumn:name="Allocated",type=string,priority=1,JSONPath=`.status.allocated`,description="Space that the disk uses on the host"
// +kubebuilder:printcolumn:name="Host",type=string,priority=1,JSONPath=`.status.host.name`,description="Host that has the disk"

// VirtualDisk is a disk with a life of its own. A VirtualMachine of its namespace that names it in
// spec.disks has it, one at a time. It is kept when the machine goes.
type VirtualDisk struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired disk.
	// +required
	Spec VirtualDiskSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status VirtualDiskStatus `json:"status,omitempty"`
}

// VirtualDiskSpec is the desired disk.
// +kubebuilder:validation:XValidation:rule="has(self.size) || has(self.image) || has(self.from)",message="must have a size, an image or a disk to clone"
// +kubebuilder:validation:XValidation:rule="!(has(self.image) && has(self.from))",message="give image or from, not both",fieldPath=".from"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.size) || (has(self.size) && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)",message="a disk can only grow: the new size must not be smaller than the old one",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule="has(self.image) == has(oldSelf.image)",message="cannot be set or removed later: the disk was created from it. Create another VirtualDisk",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="has(self.from) == has(oldSelf.from)",message="cannot be set or removed later: the disk was created from it. Create another VirtualDisk",fieldPath=".from"
type VirtualDiskSpec struct {
	// Size of the disk in bytes, such as 40G. It can grow, also while a machine uses the disk,
	// but not shrink. The default is the size of the image, or of the cloned disk.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="must be at least 1Mi and at most 1Pi"
	Size *resource.Quantity `json:"size,omitempty"`

	// Initial content of the disk. The default is an empty disk.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the disk was created from it. Create another VirtualDisk"
	Image *VirtualDiskImage `json:"image,omitempty"`

	// Disk that this one is a copy of. The copy is made while no running machine has that disk.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the disk was created from it. Create another VirtualDisk"
	From *VirtualDiskSource `json:"from,omitempty"`

	// Determines what happens to the data when this object is deleted: Delete or Retain.
	// +optional
	// +kubebuilder:default=Delete
	DeletePolicy DiskPolicy `json:"deletePolicy,omitempty"`
}

// VirtualDiskSource is what a disk is a copy of.
type VirtualDiskSource struct {
	// Name of a VirtualDisk of the same namespace.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	VirtualDisk string `json:"virtualDisk"`
}

// VirtualDiskImage is the initial content of a VirtualDisk.
// +kubebuilder:validation:XValidation:rule="[has(self.name), has(self.path), has(self.url)].filter(given, given).size() == 1",message="must have exactly one of name, path and url"
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.format)",message="is for an image by path or url",fieldPath=".format"
type VirtualDiskImage struct {
	ImageSource `json:",inline"`

	// Name of a VirtualMachineImage.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != 'tiny'",message="the default guest is no image of a disk"
	Name string `json:"name,omitempty"`
}

// VirtualDiskStatus is the observed state of a disk.
type VirtualDiskStatus struct {
	// Host that has the disk.
	// +optional
	Host *Host `json:"host,omitempty"`

	// Size of the disk in bytes, as seen by a guest.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// Space in bytes that the disk uses on the host, rounded up to MiB. Changes of less than a
	// twentieth of the size are not reported.
	// +optional
	Allocated *resource.Quantity `json:"allocated,omitempty"`

	// Name of the VirtualMachine that has the disk, whether it is running or not.
	// +optional
	AttachedTo string `json:"attachedTo,omitempty"`

	// Generation of the VirtualDisk that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the disk. Ready is True if the disk is as specified.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// VirtualDiskList is a list of VirtualDisks.
type VirtualDiskList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The VirtualDisks.
	Items []VirtualDisk `json:"items"`
}
