package backend

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// The errors of a DiskStore, besides those of a Driver.
var (
	// ErrDiskInUse means that a server has the disk.
	ErrDiskInUse = errors.New("the disk is in use")
	// ErrSourceMissing means that there is no disk with the name of the one to clone.
	ErrSourceMissing = errors.New("there is no such disk to clone")
	// ErrSourceNotReady means that the disk to clone is not complete.
	ErrSourceNotReady = errors.New("the disk to clone is not ready")
	// ErrSourceInUse means that a server that is on has the disk to clone.
	ErrSourceInUse = errors.New("the disk to clone is in use")
)

// DiskStore is implemented by drivers that keep the disks of VirtualDisks. Its methods are safe for concurrent use, and
// return before the deadline of their context.
//
// A server has the disks that its Machine names: it claims each as soon as no other server has it, and gives it back when
// the Machine no longer names it and its guest has released it, or when it is deleted. A claim is durable before the disk is
// part of the server, so that two servers never have the same disk, whenever the driver is killed.
type DiskStore interface {
	// WatchDisks sets the function to call with a disk whose state has changed. It is called once, before any other
	// method. The function does not block.
	WatchDisks(notify func(DiskIdentity))

	// ObserveDisk returns the state of a disk, and never changes anything. The error is ErrNotFound if there is none, and
	// no attempt to create one.
	ObserveDisk(ctx context.Context, id DiskIdentity) (DiskState, error)

	// EnsureDisk begins to create a disk, or to grow it, in the background. It does nothing while that is in progress, or
	// if the disk is as specified; after a failure it begins the next attempt. The error is ErrInvalid if the disk is not
	// possible, and one of the errors of sources if it cannot be cloned now.
	EnsureDisk(ctx context.Context, disk VirtualDisk) error

	// DeleteDisk removes a disk. From then on no server can claim it. It returns nil only after everything is gone, or if
	// there was no disk. The error is ErrDiskInUse if a server has the disk, and ErrInProgress while something else is done
	// with it; the function given to WatchDisks is called when that has ended.
	DeleteDisk(ctx context.Context, id DiskIdentity, retain bool) error

	// Disks returns all disks.
	Disks(ctx context.Context) ([]StoredDisk, error)
}

// DiskIdentity identifies a VirtualDisk. Servers find it by their cluster, its namespace and its name.
type DiskIdentity struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Cluster is the UID of the cluster that has the VirtualDisk.
	Cluster types.UID `json:"cluster"`
}

// VirtualDisk is the desired state of a disk.
type VirtualDisk struct {
	DiskIdentity `json:"identity"`
	// SizeBytes is its size; 0 means that of the image or the source.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Image is its initial content; nil means that it is empty, or a clone.
	Image *v1alpha1.Image `json:"image,omitempty"`
	// From is the name of the disk to clone, in the same namespace and cluster; empty means none.
	From string `json:"from,omitempty"`
}

// DiskState is the observed state of a disk.
type DiskState struct {
	// Created means that a server can have the disk.
	Created bool
	// Busy means that an operation is in progress, and Progress describes how far it is.
	Busy     bool
	Progress string
	// Failure is why the last attempt to create or grow the disk failed, at FailedAt; nil if it did not.
	Failure  error
	FailedAt time.Time
	// Lost is why the data is lost; empty if it is not.
	Lost string
	// SizeBytes is the size seen by a guest, AllocatedBytes the space used in the file system.
	SizeBytes      int64
	AllocatedBytes int64
	// AttachedTo is the server that has the disk, on or off; nil if there is none.
	AttachedTo *Identity
}

// StoredDisk is the disk of a VirtualDisk on the host.
type StoredDisk struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// AttachedTo is the name of the VirtualMachine that has the disk; empty if there is none.
	AttachedTo string `json:"attachedTo,omitempty"`
	// Path is where the disk is.
	Path string `json:"path"`
	// AllocatedBytes is the space used in the file system, VirtualBytes the size seen by a guest.
	AllocatedBytes int64 `json:"allocatedBytes"`
	VirtualBytes   int64 `json:"virtualBytes"`
}
