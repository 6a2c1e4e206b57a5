// Package fake is a driver without machines: it keeps its servers in memory. It serves
// demonstrations, and tests of the controller, which can make it slow, unresponsive or faulty.
package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Name is the name of the driver.
const Name = "fake"

// Options configure the driver.
type Options struct {
	// Clock is the source of time; nil is the real clock.
	Clock clock.WithDelayedExecution
	// Latency is the duration of a task; 0 completes it within the call.
	Latency time.Duration
	// BootTime is the time from a start to the first response of the guest; 0 is none. If it is
	// negative, the guest responds only after Driver.Boot.
	BootTime time.Duration
	// Host is the simulated host. Without an ID, all drivers have the same host.
	Host backend.Host
	// Service means that nodes can reach the servers; see Driver.Expose.
	Service bool
}

// Driver is an in-memory backend.
type Driver struct {
	options Options

	mu        sync.Mutex
	notify    func(backend.Identity)
	servers   map[types.UID]*server
	kept      []backend.RetainedDisk
	runs      int
	calls     []string
	count     int
	failures  map[string][]error
	held      map[backend.Task]bool
	images    map[types.UID]bool
	stored    map[types.UID]backend.VirtualDisk
	snapshots map[types.UID]backend.SnapshotState
	// failedRestore is why the next restore fails.
	failedRestore error
	down          bool
	closed        bool
}

type server struct {
	backend.Server
	machine backend.Machine
	// configured is the machine since the last change of its configuration, definition the one at
	// the start.
	configured backend.Machine
	seed       *backend.Seed
	finish     func() // completes the task
	silent     bool
	lost       string // why saved memory cannot be used
}

// New returns a backend without servers.
func New(options Options) *Driver {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Host.ID == "" {
		options.Host = backend.Host{ID: Name, Name: Name}
	}
	return &Driver{
		options: options, notify: func(backend.Identity) {},
		servers: map[types.UID]*server{}, failures: map[string][]error{}, held: map[backend.Task]bool{}, images: map[types.UID]bool{},
		stored: map[types.UID]backend.VirtualDisk{}, snapshots: map[types.UID]backend.SnapshotState{},
	}
}

// Name implements backend.Driver.
func (d *Driver) Name() string { return Name }

// Host implements backend.Driver.
func (d *Driver) Host() backend.Host { return d.options.Host }

// Capabilities implements backend.Driver.
func (d *Driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{Disks: true, Pause: true, Sleep: true, Agent: true, Service: d.options.Service}
}

// Watch implements backend.Driver.
func (d *Driver) Watch(notify func(backend.Identity)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notify = notify
}

// begin records a call and returns the error set for it.
func (d *Driver) begin(call string, id backend.Identity) error {
	d.calls = append(d.calls, call+" "+id.Name)
	d.count++
	switch {
	case d.closed, d.down:
		return fmt.Errorf("fake backend: %w", backend.ErrUnavailable)
	case len(d.failures[call]) > 0:
		err := d.failures[call][0]
		d.failures[call] = d.failures[call][1:]
		return err
	}
	return nil
}

func (d *Driver) find(id backend.Identity) (*server, error) {
	s := d.servers[id.UID]
	if s == nil {
		return nil, fmt.Errorf("server %s: %w", id.UID, backend.ErrNotFound)
	}
	return s, nil
}

// Observe implements backend.Driver.
func (d *Driver) Observe(_ context.Context, id backend.Identity) (backend.Server, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down || d.closed {
		return backend.Server{}, fmt.Errorf("fake backend: %w", backend.ErrUnavailable)
	}
	s, err := d.find(id)
	if err != nil {
		return backend.Server{}, err
	}
	return s.observed(), nil
}

// List implements backend.Driver.
func (d *Driver) List(context.Context) ([]backend.Server, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down || d.closed {
		return nil, fmt.Errorf("fake backend: %w", backend.ErrUnavailable)
	}
	var all []backend.Server
	for _, s := range d.servers {
		all = append(all, s.observed())
	}
	slices.SortFunc(all, func(a, b backend.Server) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return all, nil
}

// observed returns the server as Observe returns it.
func (s *server) observed() backend.Server {
	observed := s.Server
	if s.silent {
		observed.State, observed.Message = backend.StateUnknown, "the monitor does not respond"
	}
	if s.Ended != nil {
		ended := *s.Ended
		observed.Ended = &ended
	}
	observed.Addresses, observed.Endpoints, observed.Pending = slices.Clone(s.Addresses), slices.Clone(s.Endpoints), slices.Clone(s.Pending)
	return observed
}

// do changes a server: immediately, or as a task.
func (d *Driver) do(s *server, task backend.Task, finish func()) error {
	if s.Task == task {
		return backend.ErrInProgress
	}
	if d.options.Latency == 0 && !d.held[task] {
		finish()
		go d.notify(s.Identity)
		return nil
	}
	s.Task = task
	s.finish = func() {
		if s.Task == task {
			s.Task, s.finish = backend.TaskNone, nil
			finish()
			go d.notify(s.Identity)
		}
	}
	if !d.held[task] {
		ours := s.finish
		d.options.Clock.AfterFunc(d.options.Latency, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			ours()
		})
	}
	return backend.ErrInProgress
}

// Close implements backend.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

// runName returns a unique name for a run or an attempt.
func (d *Driver) runName() string {
	d.runs++
	return fmt.Sprintf("run-%d", d.runs)
}

// endpoints makes up endpoints of the ports.
func endpoints(ports []v1alpha1.Port) []v1alpha1.Endpoint {
	var all []v1alpha1.Endpoint
	for _, port := range ports {
		all = append(all, v1alpha1.Endpoint{
			Name: port.Name, Protocol: port.Protocol, Address: fmt.Sprintf("127.0.0.1:%d", 20000+port.Port%10000),
		})
	}
	return all
}
