// Package fake is a driver without machines: it remembers in memory what it was asked
// for. It is for tests of the controller, which can make it slow, silent or wrong, and for
// demonstrations. What it holds is gone when the program ends.
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

// Options say how the driver behaves.
type Options struct {
	// Clock is what it takes the time from; nil is the real one.
	Clock clock.WithDelayedExecution
	// Latency is how long a task takes; 0 has it done when the call returns.
	Latency time.Duration
	// BootTime is how long a guest takes to answer after its start; 0 has it answer
	// at once, less than 0 never: see Driver.Boot.
	BootTime time.Duration
	// Host is where it pretends to be; without an ID it is the same for all.
	Host backend.Host
}

// Driver is a backend in memory.
type Driver struct {
	options Options

	mu       sync.Mutex
	notify   func(backend.Identity)
	servers  map[types.UID]*server
	kept     []backend.RetainedDisk
	runs     int
	calls    []string
	count    int
	failures map[string][]error
	held     map[backend.Task]bool
	down     bool
	closed   bool
}

// server is one server.
type server struct {
	backend.Server
	machine backend.Machine
	// told is what was configured after the start; the definition of the next.
	told   backend.Machine
	seed   *backend.Seed
	finish func() // ends the task
	silent bool
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
		servers: map[types.UID]*server{}, failures: map[string][]error{}, held: map[backend.Task]bool{},
	}
}

// Name implements backend.Driver.
func (d *Driver) Name() string { return Name }

// Host implements backend.Driver.
func (d *Driver) Host() backend.Host { return d.options.Host }

// Capabilities implements backend.Driver.
func (d *Driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pause: true, FractionalCPU: true, Agent: true}
}

// Watch implements backend.Driver.
func (d *Driver) Watch(notify func(backend.Identity)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notify = notify
}

// begin notes a call, and returns the error that it is to have.
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

// find returns a server.
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
	return s.seen(), nil
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
		all = append(all, s.seen())
	}
	slices.SortFunc(all, func(a, b backend.Server) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return all, nil
}

// seen returns the server as somebody sees it from outside.
func (s *server) seen() backend.Server {
	seen := s.Server
	if s.silent {
		seen.State, seen.Message = backend.StateUnknown, "the monitor does not answer"
	}
	if s.Ended != nil {
		ended := *s.Ended
		seen.Ended = &ended
	}
	seen.Addresses, seen.Endpoints, seen.Pending = slices.Clone(s.Addresses), slices.Clone(s.Endpoints), slices.Clone(s.Pending)
	return seen
}

// do makes something happen with a server: at once, or as a task.
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

// runName returns a name for a run or an attempt that no other has.
func (d *Driver) runName() string {
	d.runs++
	return fmt.Sprintf("run-%d", d.runs)
}

// endpoints invents where the ports can be reached.
func endpoints(ports []v1alpha1.Port) []v1alpha1.Endpoint {
	var all []v1alpha1.Endpoint
	for _, port := range ports {
		all = append(all, v1alpha1.Endpoint{
			Name: port.Name, Protocol: port.Protocol, Address: fmt.Sprintf("127.0.0.1:%d", 20000+port.Port%10000),
		})
	}
	return all
}
