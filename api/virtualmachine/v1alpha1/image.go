package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ImageTiny is the name in spec.image of a VirtualMachine for the default guest.
const ImageTiny = "tiny"

// ImageFinalizer is the finalizer of a VirtualMachineImage. It remains as long as machines name the image.
const ImageFinalizer = "cloudnative.tw/image"

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualmachineimages,scope=Cluster,shortName=vmimage;vmimages,categories=keelson
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether machines can use the image"
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`,description="Space that the image uses on the host"
// +kubebuilder:printcolumn:name="Users",type=integer,JSONPath=`.status.users`,description="Number of VirtualMachines that name the image"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:printcolumn:name="Host",type=string,priority=1,JSONPath=`.status.host.name`,description="Host that has the image"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'tiny'",message="metadata.name: tiny is the default guest: choose another name"

// VirtualMachineImage is a disk image that VirtualMachines of all namespaces can name in
// spec.image.name. It is imported once. It is deleted when no machine names it any more.
type VirtualMachineImage struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired image. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: disks of machines are based on the image. Create another VirtualMachineImage"
	Spec VirtualMachineImageSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status VirtualMachineImageStatus `json:"status,omitempty"`
}

// VirtualMachineImageSpec is the source of an image.
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.path)",message="must have exactly one of url and path"
type VirtualMachineImageSpec struct {
	ImageSource `json:",inline"`

	// Whether the image runs the QEMU guest agent, as cloud images do. Without an agent,
	// Ready of a machine only means that it is running.
	// +optional
	// +kubebuilder:default=true
	Agent *bool `json:"agent,omitempty"`

	// User that cloud-init creates in machines of this image, such as fedora. keelson vm ssh logs
	// in as this user.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	LoginUser string `json:"loginUser,omitempty"`
}

// VirtualMachineImageStatus is the observed state of an image.
type VirtualMachineImageStatus struct {
	// Host that has the image.
	// +optional
	Host *Host `json:"host,omitempty"`

	// Format of the image, qcow2 or raw.
	// +optional
	Format string `json:"format,omitempty"`

	// Space in bytes that the image uses on the host, rounded up to MiB.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// Size in bytes of the disk in the image, rounded up to MiB: the smallest root disk of its
	// machines.
	// +optional
	VirtualSize *resource.Quantity `json:"virtualSize,omitempty"`

	// Number of VirtualMachines that name the image.
	// +optional
	Users int32 `json:"users"`

	// Generation of the VirtualMachineImage that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the image. Ready is True if machines can use it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// VirtualMachineImageList is a list of VirtualMachineImages.
type VirtualMachineImageList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The VirtualMachineImages.
	Items []VirtualMachineImage `json:"items"`
}
