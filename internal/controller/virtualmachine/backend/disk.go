package backend

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// Disk is a disk of a server besides its root disk.
type Disk struct {
	// Name is the serial number of the disk in the guest.
	Name string `json:"name"`
	// SizeBytes is its size; 0 means that of the image.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Image is its initial content; nil means that it is empty.
	Image *v1alpha1.Image `json:"image,omitempty"`
	// VirtualDisk is the name of the VirtualDisk, in the namespace of the server, that this is; empty if it is none. Then
	// the other fields are not set.
	VirtualDisk string `json:"virtualDisk,omitempty"`
	// Retain keeps its file when the disk is removed from a server.
	Retain bool `json:"retain,omitempty"`
}

// Continues reports whether d can be the same disk as before. Otherwise, the disk was removed from
// the spec and another one of the same name was added: sizes and images of existing disks are
// validated by the schema.
func (d *Disk) Continues(before *Disk) bool {
	return d.Name == before.Name && d.VirtualDisk == before.VirtualDisk && d.SizeBytes >= before.SizeBytes && reflect.DeepEqual(d.Image, before.Image)
}

// DiskMeter is implemented by drivers that can measure the disks of servers.
type DiskMeter interface {
	// DiskUsage returns the usage of all disks of each server.
	DiskUsage(ctx context.Context) (map[types.UID]DiskUsage, error)
}

// DiskUsage is the usage of the disks of a server.
type DiskUsage struct {
	// AllocatedBytes is the space used in the file system, VirtualBytes the size seen by the guest.
	AllocatedBytes, VirtualBytes int64
}

// PendingDisk is a disk whose change is not complete.
type PendingDisk struct {
	Name string
	// Message describes what it waits for, or the failure.
	Message string
	// Failed means that the last attempt failed. It is retried.
	Failed bool
	// InUse means that another server has the disk.
	InUse bool
}
