package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// Disk is a disk of a machine besides its root disk.
// +kubebuilder:validation:XValidation:rule="has(self.size) || has(self.image) || has(self.virtualDisk)",message="must have a size, an image, or both, or a virtualDisk"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualDisk) || !(has(self.size) || has(self.image) || (has(self.deletePolicy) && self.deletePolicy != 'Delete'))",message="a VirtualDisk has its own size, image and deletePolicy, and is kept when the machine goes: remove these fields",fieldPath=".virtualDisk"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.size) || (has(self.size) && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)",message="a disk can only grow: the new size must not be smaller than the old one",fieldPath=".size"
// +kubebuilder:validation:XValidation:rule="has(self.image) == has(oldSelf.image)",message="cannot be set or removed later: the disk was created from it. Add another disk",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="has(self.virtualDisk) == has(oldSelf.virtualDisk)",message="cannot be set or removed later: this would replace the disk. Add another disk",fieldPath=".virtualDisk"
type Disk struct {
	// Name of the disk, which the guest sees as the serial number: Linux has a link
	// /dev/disk/by-id/virtio-NAME. The names root, seed and cdrom are reserved.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="!(self in ['root', 'seed', 'cdrom'])",message="the names root, seed and cdrom are reserved"
	Name string `json:"name"`

	// Size of the disk in bytes, such as 40G. It can grow but not shrink. The default is
	// the size of the image.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="must be at least 1Mi and at most 1Pi"
	Size *resource.Quantity `json:"size,omitempty"`

	// Initial content of the disk. The default is an empty disk.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the disk was created from it. Add another disk"
	Image *DiskImage `json:"image,omitempty"`

	// Name of a VirtualDisk of the namespace. The machine has it as soon as no other machine
	// does, and until it is removed from this list, or this object is deleted.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: remove the disk from the list, and add another one"
	VirtualDisk string `json:"virtualDisk,omitempty"`

	// Determines what happens to the disk when it is removed from this list, or when this
	// object is deleted: Delete or Retain.
	// +optional
	// +kubebuilder:default=Delete
	DeletePolicy DiskPolicy `json:"deletePolicy,omitempty"`
}

// DiskImage is an image of a disk: a file of the host, or a download.
// +kubebuilder:validation:XValidation:rule="has(self.path) != has(self.url)",message="must have exactly one of path and url"
type DiskImage struct {
	ImageSource `json:",inline"`
}

// CDROM is a CD-ROM drive.
type CDROM struct {
	// Image in the drive, such as the ISO 9660 image of an installer. It is only read.
	// +required
	Image DiskImage `json:"image"`
}

// Firmware is the firmware of a machine.
// +kubebuilder:validation:Enum=BIOS;UEFI
type Firmware string

// The values of Firmware.
const (
	// FirmwareBIOS is a PC BIOS.
	FirmwareBIOS Firmware = "BIOS"
	// FirmwareUEFI is UEFI, without Secure Boot.
	FirmwareUEFI Firmware = "UEFI"
)
