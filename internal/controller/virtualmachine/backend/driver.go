// Package backend is the contract between the controller of VirtualMachines and the
// drivers. Drivers import this package and the API, and nothing else of the controller.
// docs/internals/drivers.md explains how to write a driver; every driver has to pass the
// tests in internal/testing/drivertest.
package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The errors that a driver returns. It wraps them with the server and the failure.
var (
	// ErrNotFound means that the backend certainly has no server with that UID.
	ErrNotFound = errors.New("machine not found")
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
	// ErrActive means that a server is not idle any more: Server.LastActive has changed.
	ErrActive = errors.New("the machine is in use")
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
	// on or paused. A server that is asleep wakes: it goes on where it was, with the machine
	// that it was started with. If its memory cannot be used, the server is off afterwards,
	// and its Ended has CauseMemoryLost.
	Start(ctx context.Context, machine Machine) error

	// Stop shuts the guest down, and powers the server off when grace is over. Afterwards
	// its Ended has CauseRequested, even if the server was off already. It discards the
	// memory of a server that is asleep: to shut its guest down, wake it first.
	Stop(ctx context.Context, id Identity, grace time.Duration) error

	// Pause halts the processors of a running server.
	Pause(ctx context.Context, id Identity) error

	// Resume lets the processors of a paused server run again.
	Resume(ctx context.Context, id Identity) error

	// Sleep saves the memory of a server that is on or paused, and powers it off: it is then
	// asleep, and Start wakes it. If the server is asleep, Sleep only changes the options; if
	// it is off, nothing. If it fails, the server is on as before, and the next call returns
	// why. The error is ErrInvalid if the backend has no Capabilities.Sleep, and ErrActive if
	// options.Idle is set and someone uses the server.
	Sleep(ctx context.Context, id Identity, options SleepOptions) error

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

// Dialer is implemented by drivers that can connect to any port of a guest, whether it is forwarded or not.
type Dialer interface {
	// Dial opens a connection to a TCP port of the guest of a running server. The error is ErrNotFound if there is no
	// server, ErrUnavailable if it is off or its network does not work, and any other if the guest does not accept the
	// connection. The context limits the attempt, not the connection.
	Dial(ctx context.Context, id Identity, port uint16) (net.Conn, error)
}

// Consoler is implemented by drivers whose servers have a serial console.
type Consoler interface {
	// Console connects to the serial console of a server that is on. Reads return its output from now on, writes are its
	// input. A server may have one connection at a time; the caller closes it, which ends pending reads and writes. The
	// error is ErrNotFound if there is no server, ErrUnavailable if it is off. The context limits the attempt, not the
	// connection.
	Console(ctx context.Context, id Identity) (io.ReadWriteCloser, error)

	// ConsoleLog returns the output of the serial console of a server, on or off, as far as it is kept. The context ends
	// it. The error is ErrNotFound if there is no server.
	ConsoleLog(ctx context.Context, id Identity, options LogOptions) (io.ReadCloser, error)
}

// Screener is implemented by drivers whose servers may have a display.
type Screener interface {
	// Screen connects to the display of a server that is on. The server speaks RFB (RFC 6143), without a password. A server
	// may have several connections, which see the same. The caller closes it, which ends pending reads and writes. The
	// error is ErrNotFound if there is no server, ErrUnavailable if it is off, and ErrInvalid if it was started without a
	// display. The context limits the attempt, not the connection.
	Screen(ctx context.Context, id Identity) (io.ReadWriteCloser, error)

	// Screenshot returns what the display of a server that is on shows, as PNG. Errors are as those of Screen.
	Screenshot(ctx context.Context, id Identity) ([]byte, error)
}

// Attender is implemented by drivers whose servers can be put to sleep when they are idle.
type Attender interface {
	// Attend says that someone uses a server until release is called. It is not idle meanwhile. A server that is asleep with
	// SleepOptions.WakeOnConnection is woken by the controller: its Asleep.Wanted is set, and Attend returns when it is on. The
	// context limits that. The error is ErrNotFound if there is no server. It is no error if the server is off.
	Attend(ctx context.Context, id Identity) (release func(), err error)
}

// LogOptions are the options of ConsoleLog.
type LogOptions struct {
	// Tail limits the log to that number of last lines; negative: no limit.
	Tail int
	// Follow means that the log has no end: reads wait for new output, also that of later runs.
	Follow bool
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

// Networker is implemented by drivers that can list the networks of their servers.
type Networker interface {
	// Networks returns the networks of namespaces with running servers.
	Networks(ctx context.Context) ([]Network, error)
}

// Network is the network of the servers of a namespace.
type Network struct {
	Namespace string           `json:"namespace"`
	Prefix    string           `json:"prefix"`
	Machines  []NetworkMachine `json:"machines,omitempty"`
	// Error is why the state of the network is not known; empty if it is.
	Error string `json:"error,omitempty"`
}

// NetworkMachine is a server in its network.
type NetworkMachine struct {
	UID     types.UID `json:"uid"`
	Name    string    `json:"name"`
	Address string    `json:"address"`
	// Connected means that the server is connected to the network, Leased that the guest uses its address.
	Connected bool `json:"connected"`
	Leased    bool `json:"leased"`
	// The counters begin at zero when the network is started. Received is what the guest has received.
	ReceivedBytes      uint64 `json:"receivedBytes"`
	TransmittedBytes   uint64 `json:"transmittedBytes"`
	ReceivedPackets    uint64 `json:"receivedPackets"`
	TransmittedPackets uint64 `json:"transmittedPackets"`
	// DroppedPackets includes refused connections.
	DroppedPackets uint64 `json:"droppedPackets"`
	// Connections is the number of open connections with other networks and with forwarded ports.
	Connections int `json:"connections"`
	// Inbound are those of them that were made to the server, and InboundTotal all of these so far.
	Inbound      int              `json:"inbound"`
	InboundTotal uint64           `json:"inboundTotal"`
	Forwards     []NetworkForward `json:"forwards,omitempty"`
}

// NetworkForward is a forwarded port.
type NetworkForward struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	// Host is the address on the host, Port the port of the guest.
	Host string `json:"host"`
	Port uint16 `json:"port"`
	// Error is why the port is not forwarded; empty if it is.
	Error string `json:"error,omitempty"`
}

// Capabilities are the capabilities of a backend.
type Capabilities struct {
	// Pause reports whether servers can be paused.
	Pause bool
	// Sleep reports whether servers can be put to sleep.
	Sleep bool
	// Service reports whether nodes can reach servers.
	Service bool
	// Disks reports whether servers can have disks besides the root disk.
	Disks bool
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

// SleepOptions are the options of Sleep.
type SleepOptions struct {
	// Idle means that the server is put to sleep because it is idle.
	Idle bool `json:"idle,omitempty"`
	// WakeOnConnection means that connections to the server wait until it is awake, and set Asleep.Wanted.
	WakeOnConnection bool `json:"wakeOnConnection,omitempty"`
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
