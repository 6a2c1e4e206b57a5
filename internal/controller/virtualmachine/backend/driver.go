// Package backend is the contract between the controller of VirtualMachines and the
// drivers that make machines real. Drivers import this package and the API, and nothing
// else of the controller. docs/internals/drivers.md tells how to write one; the suite that every
// driver has to pass is internal/testing/drivertest.
package backend

import (
	"context"
	"errors"
	"time"
)

// The errors that a driver returns. It wraps them with what happened to which server.
var (
	// ErrNotFound says for certain that the backend has no server of that UID.
	ErrNotFound = errors.New("server not found")
	// ErrInProgress says that the call was accepted and goes on in the background.
	// Observe shows how far it is, and the function given to Watch is called when
	// that changes. The same call again while it goes on does nothing and returns the
	// same.
	ErrInProgress = errors.New("in progress")
	// ErrInvalid says that the backend cannot do what is asked for: the user must
	// change it, and trying again is of no use.
	ErrInvalid = errors.New("not possible")
	// ErrUnavailable says that the backend, or the monitor of the machine, does not
	// answer, so that nothing is known.
	ErrUnavailable = errors.New("backend does not answer")
	// ErrMissing says that what the driver needs is not installed, or that there is
	// no such driver. The message says how to get it.
	ErrMissing = errors.New("driver is missing")
)

// FieldError is an ErrInvalid that is known from the spec alone, whatever there is of the backend.
type FieldError struct {
	// Field is the path of the field, such as spec.resource.cpu.
	Field string
	// Message says what is allowed.
	Message string
}

// Error returns both, after the words of ErrInvalid.
func (e *FieldError) Error() string { return ErrInvalid.Error() + ": " + e.Field + ": " + e.Message }

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Driver operates the servers of one backend. Its methods may be called from several
// goroutines, also for one server. Each returns before the deadline of its context, and
// quickly: what takes longer goes on in the background, see ErrInProgress.
//
// A server is known by the UID in its Identity. Two machines never meet, whatever they
// are called.
type Driver interface {
	// Name is what spec.driver and --vm-driver call the driver.
	Name() string

	// Capabilities tells what the backend can do.
	Capabilities() Capabilities

	// Host returns where the driver keeps its servers. It is the same as long as the
	// driver is open.
	Host() Host

	// Watch sets the function to call when the state of a server has changed, by itself
	// or by a call. It is called once, before anything else. The function does not
	// block. A change may be told twice, or together with the next one.
	Watch(notify func(Identity))

	// Observe returns what there is, and never changes anything. The error is
	// ErrNotFound if there is no server and no attempt to make one, ErrUnavailable if
	// that cannot be known.
	Observe(ctx context.Context, id Identity) (Server, error)

	// List returns all servers that carry the tag of this project, also those of other
	// clusters. Of each it tells whose it is, its ID, State and Task, and the Usage that
	// was last measured; the rest as far as it costs no call for each.
	List(ctx context.Context) ([]Server, error)

	// Create makes a server that is powered off: its disk and its definition. If there
	// is one of that UID, it is made complete, and nothing else happens. After a
	// failed attempt it tries again.
	Create(ctx context.Context, machine Machine) error

	// Start powers the server on, with what machine says now. A server that is on, or
	// paused, stays as it is.
	Start(ctx context.Context, machine Machine) error

	// Stop powers the server off: the guest is asked first, and cut off when grace is
	// over. Afterwards its Ended has CauseRequested, also if the server was off
	// already.
	Stop(ctx context.Context, id Identity, grace time.Duration) error

	// Pause halts the processors of a running server.
	Pause(ctx context.Context, id Identity) error

	// Resume lets them run again.
	Resume(ctx context.Context, id Identity) error

	// Reconfigure makes machine the definition of the server. What can be changed in a
	// server that is on is changed; the rest is in Server.Pending until the next
	// Start.
	Reconfigure(ctx context.Context, machine Machine) error

	// Delete cuts the server off and removes it with everything that belongs to it,
	// whatever state it is in and whatever else is going on with it. It returns nil
	// only when all is gone, and also if there was nothing.
	Delete(ctx context.Context, id Identity, options DeleteOptions) error

	// Close lets go of the backend. The servers go on. What is called afterwards
	// returns ErrUnavailable.
	Close() error
}

// Retainer is what a driver implements that can tell which disks it has retained.
type Retainer interface {
	// Retained returns the disks of servers that were deleted without them.
	Retained(ctx context.Context) ([]RetainedDisk, error)
}

// RetainedDisk is the disk of a server that was deleted without it.
type RetainedDisk struct {
	// Namespace and Name are those of the VirtualMachine, as far as they are known.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Path is where the disk is.
	Path string `json:"path"`
	// AllocatedBytes is what it takes of its file system, VirtualBytes the size that a guest sees.
	AllocatedBytes int64 `json:"allocatedBytes"`
	VirtualBytes   int64 `json:"virtualBytes"`
}

// Capabilities are what a backend can do.
type Capabilities struct {
	// Pause tells whether servers can be paused.
	Pause bool
	// FractionalCPU tells whether a server can have parts of a processor.
	FractionalCPU bool
	// Agent tells whether guests can answer, so that it is known when one has booted.
	Agent bool
	// Emulated tells whether the backend may have to emulate processors.
	Emulated bool
}

// Host is where a driver keeps servers.
type Host struct {
	// ID stands for what the driver keeps there. It stays the same as long as servers are
	// found again, and is never that of another host: the controller does nothing for a
	// server that was created with another one.
	ID string
	// Name is that of the host, for people.
	Name string
}

// DeleteOptions say how a server is deleted.
type DeleteOptions struct {
	// Grace is how long the guest has to power off cleanly.
	Grace time.Duration
	// KeepDisk leaves the disk.
	KeepDisk bool
}
