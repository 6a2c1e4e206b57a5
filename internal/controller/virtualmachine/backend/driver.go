// Package backend is the contract between the controller of VirtualMachines and the
// drivers. Drivers import this package and the API, and nothing else of the controller.
// docs/internals/drivers.md explains how to write a driver; every driver has to pass the
// tests in internal/testing/drivertest.
package backend

import (
	"context"
	"errors"
	"time"
)

// The errors that a driver returns. It wraps them with the server and the failure.
var (
	// ErrNotFound means that the backend certainly has no server with that UID.
	ErrNotFound = errors.New("server not found")
	// ErrInProgress means that the call was accepted and continues in the background.
	// Observe returns its progress, and the function given to Watch is called when it
	// changes. Repeating the call in the meantime does nothing and returns the same
	// error.
	ErrInProgress = errors.New("in progress")
	// ErrInvalid means that the backend cannot satisfy the request. Retries are useless;
	// the user has to change the spec.
	ErrInvalid = errors.New("not possible")
	// ErrUnavailable means that the backend, or the monitor of the machine, does not
	// respond, so that the state is unknown.
	ErrUnavailable = errors.New("backend does not answer")
	// ErrMissing means that a dependency of the driver is not installed, or that there
	// is no such driver. The message says how to install it.
	ErrMissing = errors.New("driver is missing")
)

// FieldError is an ErrInvalid that follows from the spec alone, regardless of the backend.
type FieldError struct {
	// Field is the path of the field, such as spec.resource.cpu.
	Field string
	// Message says what is allowed.
	Message string
}

// Error implements error.
func (e *FieldError) Error() string { return ErrInvalid.Error() + ": " + e.Field + ": " + e.Message }

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Driver operates the servers of one backend. Its methods are safe for concurrent use, also
// for the same server. Each returns quickly, and before the deadline of its context: longer
// operations continue in the background, see ErrInProgress.
//
// The UID in its Identity identifies a server. Machines never interfere, whatever their
// names are.
type Driver interface {
	// Name returns the name of the driver in spec.driver and --vm-driver.
	Name() string

	// Capabilities returns the capabilities of the backend.
	Capabilities() Capabilities

	// Host returns the host of the driver's servers. It does not change while the driver
	// is open.
	Host() Host

	// Watch sets the function to call after each change of the state of a server, whatever
	// caused it. Watch is called once, before any other method. The function does not
	// block. Notifications may be duplicated or coalesced.
	Watch(notify func(Identity))

	// Observe returns the state of a server, and never changes anything. The error is
	// ErrNotFound if there is no server and no attempt to create one, ErrUnavailable if
	// that is unknown.
	Observe(ctx context.Context, id Identity) (Server, error)

	// List returns all servers of this project, including those of other clusters. Each
	// has its Identity, ID, State, Task and the last Usage; other fields are set if that
	// needs no extra call per server.
	List(ctx context.Context) ([]Server, error)

	// Create creates a server that is powered off: its disk and its definition. It
	// completes a partially created server, and retries after a failed attempt. It does
	// nothing to a complete one.
	Create(ctx context.Context, machine Machine) error

	// Start powers the server on with the given machine. It does nothing if the server is
	// on or paused.
	Start(ctx context.Context, machine Machine) error

	// Stop shuts the guest down, and powers the server off when grace is over. Afterwards
	// its Ended has CauseRequested, even if the server was off already.
	Stop(ctx context.Context, id Identity, grace time.Duration) error

	// Pause halts the processors of a running server.
	Pause(ctx context.Context, id Identity) error

	// Resume lets the processors of a paused server run again.
	Resume(ctx context.Context, id Identity) error

	// Reconfigure makes machine the definition of the server. It applies the changes that
	// are possible while the server is on; the others are in Server.Pending until the next
	// Start.
	Reconfigure(ctx context.Context, machine Machine) error

	// Delete powers the server off and removes it with all its resources, regardless of
	// its state and task. It returns nil only after everything is gone, or if there was
	// no server.
	Delete(ctx context.Context, id Identity, options DeleteOptions) error

	// Close releases the backend. The servers keep running. Later calls return
	// ErrUnavailable.
	Close() error
}

// Retainer is implemented by drivers that can list the disks that they retained.
type Retainer interface {
	// Retained returns the retained disks of deleted servers.
	Retained(ctx context.Context) ([]RetainedDisk, error)
}

// RetainedDisk is the retained disk of a deleted server.
type RetainedDisk struct {
	// Namespace and Name are those of the VirtualMachine, as far as they are known.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Path is where the disk is.
	Path string `json:"path"`
	// AllocatedBytes is the space used in the file system, VirtualBytes the size seen by a guest.
	AllocatedBytes int64 `json:"allocatedBytes"`
	VirtualBytes   int64 `json:"virtualBytes"`
}

// Capabilities are the capabilities of a backend.
type Capabilities struct {
	// Pause reports whether servers can be paused.
	Pause bool
	// Disks reports whether servers can have disks besides the root disk.
	Disks bool
	// FractionalCPU reports whether a server can have parts of a processor.
	FractionalCPU bool
	// Agent reports whether there is a guest agent, which reports that the guest has booted.
	Agent bool
	// Emulated reports whether the backend may have to emulate processors.
	Emulated bool
}

// Host is the host of a driver's servers.
type Host struct {
	// ID identifies the driver's state on the host. It is unique, and does not change as long
	// as the servers exist: the controller does not touch a server that was created with
	// another ID.
	ID string
	// Name is the display name of the host.
	Name string
}

// DeleteOptions are the options of Delete.
type DeleteOptions struct {
	// Grace is how long the guest has to shut down.
	Grace time.Duration
	// KeepDisk retains the root disk.
	KeepDisk bool
	// KeepDisks are the names of the other disks to retain.
	KeepDisks []string
	// KeepAll retains all disks: nobody requested their deletion.
	KeepAll bool
}
