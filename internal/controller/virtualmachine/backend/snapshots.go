package backend

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The errors of a SnapshotStore, besides those of a Driver.
var (
	// ErrNotCreated means that the server is not complete, so that it has nothing to take a snapshot of.
	ErrNotCreated = errors.New("the machine is not created yet")
	// ErrNotRunning means that the server is neither on nor asleep, so that it has no memory.
	ErrNotRunning = errors.New("the machine does not run")
	// ErrNoDisks means that the server has no disks that a snapshot could have.
	ErrNoDisks = errors.New("the machine has no disks")
)

// SnapshotStore is implemented by drivers that take snapshots of servers, and keep them. Its methods are safe for concurrent
// use, and return before the deadline of their context.
//
// A snapshot never changes and needs no server: not the one that it was taken of, nor those that were made of it, which have
// copies.
type SnapshotStore interface {
	// WatchSnapshots sets the function to call with a snapshot whose state has changed. It is called once, before any other
	// method. The function does not block.
	WatchSnapshots(notify func(SnapshotIdentity))

	// ObserveSnapshot returns the state of a snapshot, and never changes anything. The error is ErrNotFound if there is
	// none, and no attempt to take it.
	ObserveSnapshot(ctx context.Context, id SnapshotIdentity) (SnapshotState, error)

	// TakeSnapshot begins to take a snapshot of a server, in the background. It does nothing while that is in progress or
	// after a success; after a failure it begins the next attempt. The error is ErrNotFound or ErrNotCreated if there is no
	// complete server, ErrNoDisks if it has no disks, ErrNotRunning if its memory is wanted and it is off, and ErrInvalid if
	// its memory cannot be in a snapshot.
	TakeSnapshot(ctx context.Context, id SnapshotIdentity, of Source) error

	// RestoreServer begins to replace the disks of a server that is off or asleep by those of one of its snapshots, in the background,
	// once for each token: it does nothing if that is in progress or done. A disk that the snapshot does not have stays as it is. The
	// server is off afterwards, or asleep if its memory is wanted and in the snapshot; memory that was saved before is discarded.
	// Either everything is replaced or nothing, whenever the driver is killed. A request without a token withdraws one that waits, see
	// Server.RestoreWaits. The error is ErrNotFound or ErrNotCreated if there is no complete server.
	RestoreServer(ctx context.Context, id Identity, restore Restore) error

	// DeleteSnapshot removes a snapshot, and ends an attempt to take it. It returns nil only after everything is gone, or if
	// there was nothing. The error is ErrInProgress while a server is being made of it or restored from it, or an attempt to take it
	// ends; the function given to WatchSnapshots is called after that.
	DeleteSnapshot(ctx context.Context, id SnapshotIdentity) error
}

// SnapshotIdentity identifies a VirtualMachineSnapshot. Only UID is significant; the other fields are for display, and for
// notifications.
type SnapshotIdentity struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// Source is what a snapshot is taken of.
type Source struct {
	// Server is the server.
	Server Identity
	// Memory means that the snapshot also has its memory.
	Memory bool
}

// Restore is a request to restore a server.
type Restore struct {
	// Token identifies the request; empty withdraws the last one.
	Token string
	// Snapshot is the snapshot of the server.
	Snapshot SnapshotIdentity
	// Memory means that the server goes on with the memory in the snapshot, if there is one. Otherwise it boots.
	Memory bool
}

// FailedRestore is an attempt to restore a server that has failed and has changed nothing.
type FailedRestore struct {
	Token string
	Err   error
}

// SnapshotState is the observed state of a snapshot.
type SnapshotState struct {
	// Taken means that the snapshot is complete.
	Taken bool
	// Busy means that it is being taken, and Progress describes how far that is.
	Busy     bool
	Progress string
	// Failure is why the last attempt failed, at FailedAt; nil if it did not.
	Failure  error
	FailedAt time.Time
	// Lost is why a complete snapshot is lost; empty if it is not.
	Lost string
	// TakenAt is the moment of the snapshot.
	TakenAt time.Time
	// Disks are its disks, the root disk first.
	Disks []SnapshotDisk
	// AllocatedBytes is the space used in the file system.
	AllocatedBytes int64
	// MemoryBytes is the part of AllocatedBytes that is memory; 0 if there is none.
	MemoryBytes int64
	// Quiesced means that the file systems of the guest were frozen at TakenAt, so that they are consistent.
	Quiesced bool
}

// SnapshotDisk is a disk in a snapshot.
type SnapshotDisk struct {
	// Name is v1alpha1.RootDiskName, or that of a disk of spec.disks.
	Name string
	// VirtualBytes is the size seen by a guest.
	VirtualBytes int64
}

// StoredSnapshot is a snapshot in the state of a driver, for the display to a user.
type StoredSnapshot struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Machine is the name of the VirtualMachine that it was taken of.
	Machine string `json:"machine"`
	// TakenAt is the moment of the snapshot.
	TakenAt time.Time `json:"takenAt"`
	// AllocatedBytes is the space used in the file system.
	AllocatedBytes int64 `json:"allocatedBytes"`
}
