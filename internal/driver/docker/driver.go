// Package docker is the driver that runs each machine as a container of a Docker engine.
//
// Most state is in the engine: a container is found by its label, whether it runs or not, and keeps
// the result of its last run. The engine cannot store the machine's last applied spec and whether a
// stop was requested. Those are in a small record file for each machine; if it is lost, only those
// are lost. See docs/drivers.md.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Name is the name of the driver.
const Name = "docker"

// openTimeout is the response timeout of the engine when the driver is opened.
const openTimeout = 5 * time.Second

// Options configure the driver.
type Options struct {
	// StateDir is the directory of the machines' records.
	StateDir string
	// Host is the address of the engine, such as unix:///var/run/docker.sock. Empty
	// means $DOCKER_HOST, else the usual socket of this host.
	Host string
	// GuestDir is the folder with the default guest; see docs/guest.md.
	GuestDir string
	// Log receives messages about events that no caller waits for.
	Log logr.Logger
}

// step is called at each point where a crash makes a difference. The crash tests replace it.
var step = func(string) {}

// Driver runs machines.
type Driver struct {
	options Options
	engine  *client.Client
	// processors is the number of processors of the engine's host.
	processors int
	host       backend.Host

	// ctx ends with the driver, and with it all tasks. Containers keep running.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// importing is held while the default guest is imported into the engine.
	importing sync.Mutex
	// networking is held while a network is created or removed, and until the container that
	// needs it exists.
	networking *semaphore.Weighted

	watcher backend.Watcher[backend.Identity]

	mu       sync.Mutex
	closed   bool
	machines map[types.UID]*machine
}

// Open connects to the engine. The error is a backend.ErrMissing if there is none, a
// backend.ErrUnavailable if it does not respond.
func Open(options Options) (*Driver, error) {
	engine, err := connect(options.Host)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	about, host, err := identify(ctx, engine)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("query the Docker engine: %w", err), engine.Close())
	}
	if err := os.MkdirAll(options.StateDir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("open the state directory: %w", err), engine.Close())
	}
	d := &Driver{options: options, engine: engine, processors: about.NCPU, host: host, machines: map[types.UID]*machine{},
		networking: semaphore.NewWeighted(1)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.tasks.Go(d.listen)
	d.tasks.Go(d.sample)
	return d, nil
}

// connect returns a client of an engine that responds.
func connect(host string) (*client.Client, error) {
	options := []client.Opt{client.FromEnv}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	engine, err := client.New(options...)
	if err != nil {
		return nil, fmt.Errorf("find the Docker engine %s: %w", host, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	_, err = engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err == nil {
		return engine, nil
	}
	where := engine.DaemonHost()
	_ = engine.Close() // no connection is open
	if ctx.Err() != nil {
		// Something listens there: it is busy or hangs.
		return nil, fmt.Errorf("%w: the Docker engine at %s does not respond within %v: %w", backend.ErrUnavailable, where, openTimeout, err)
	}
	return nil, fmt.Errorf("%w: no Docker engine at %s: %w. On Debian and Ubuntu: apt-get install docker.io; "+
		"for an engine elsewhere, set virtualMachines.dockerHost", backend.ErrMissing, where, err)
}

// Missing returns an error that names the engine if it does not respond, see Open. Host is as in
// Options.
func Missing(host string) error {
	engine, err := connect(host)
	if err != nil {
		return err
	}
	return engine.Close()
}

// Name implements backend.Driver.
func (d *Driver) Name() string { return Name }

// Capabilities implements backend.Driver.
func (d *Driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pause: true}
}

// Watch implements backend.Driver.
func (d *Driver) Watch(notify func(backend.Identity)) { d.watcher.Watch(notify) }

// machine returns the driver's state of a machine, which may be empty.
func (d *Driver) machine(id backend.Identity) (*machine, error) {
	if err := checkUID(id.UID); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("driver docker is closed: %w", backend.ErrUnavailable)
	}
	m := d.machines[id.UID]
	if m == nil {
		m = &machine{d: d, id: id}
		m.read()
		d.machines[id.UID] = m
	}
	return m, nil
}

// forget drops the state of a deleted machine unless a task is running.
func (d *Driver) forget(m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.machines[m.id.UID] == m && !m.task.Busy() && m.record.Failed == nil {
		delete(d.machines, m.id.UID)
	}
}

// Observe implements backend.Driver.
func (d *Driver) Observe(ctx context.Context, id backend.Identity) (backend.Server, error) {
	m, err := d.machine(id)
	if errors.Is(err, backend.ErrInvalid) {
		return backend.Server{}, fmt.Errorf("%w: %w", backend.ErrNotFound, err)
	}
	if err != nil {
		return backend.Server{}, err
	}
	ctr, err := d.inspect(ctx, id.UID)
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		return backend.Server{}, err
	}
	if err == nil {
		return m.server(&ctr), nil
	}
	if server, attempted := m.attempt(); attempted {
		return server, nil
	}
	d.forget(m)
	return backend.Server{}, err
}

// List implements backend.Driver with one request to the engine.
func (d *Driver) List(ctx context.Context) ([]backend.Server, error) {
	containers, err := d.containers(ctx)
	if err != nil {
		return nil, err
	}
	var servers []backend.Server
	for i := range containers {
		s := backend.Server{Identity: identityOf(containers[i].Labels)}
		s.ID = containerName(s.UID)
		describeState(&s, containers[i].State)
		d.mu.Lock()
		m := d.machines[s.UID]
		d.mu.Unlock()
		if m != nil {
			m.complete(&s)
		}
		servers = append(servers, s)
	}
	slices.SortFunc(servers, func(a, b backend.Server) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return servers, nil
}

// containers returns the machines' containers, including those that are off.
func (d *Driver) containers(ctx context.Context) ([]container.Summary, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("driver docker is closed: %w", backend.ErrUnavailable)
	}
	found, err := d.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours()})
	if err != nil {
		return nil, d.typed("list containers", err)
	}
	return slices.DeleteFunc(found.Items, func(ctr container.Summary) bool { return checkUID(identityOf(ctr.Labels).UID) != nil }), nil
}

// identities returns the identities of all machines in the engine.
func (d *Driver) identities(ctx context.Context) ([]backend.Identity, error) {
	containers, err := d.containers(ctx)
	var ids []backend.Identity
	for i := range containers {
		ids = append(ids, identityOf(containers[i].Labels))
	}
	return ids, err
}

// Close implements backend.Driver. Containers keep running; tasks are cancelled, and the next
// manager repeats them.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.tasks.Wait()
	return d.engine.Close()
}
