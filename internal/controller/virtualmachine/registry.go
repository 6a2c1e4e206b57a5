package virtualmachine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Driver operates the servers of a backend.
type Driver = backend.Driver

// reopenInterval is how long a failure to open a driver is cached.
const reopenInterval = 5 * time.Second

// Opener opens a driver. The error is a backend.ErrMissing if something is not installed, or
// a backend.ErrUnavailable if a retry may succeed.
type Opener func() (Driver, error)

// Drivers has the drivers of a manager. Each is opened when it is first needed, which is after
// the manager has become the leader.
type Drivers struct {
	names   []string
	openers map[string]Opener
	clock   clock.PassiveClock

	mu     sync.Mutex
	closed bool
	slots  map[string]*slot

	servers   backend.Watcher[backend.Identity]
	images    backend.Watcher[string] // by name
	disks     backend.Watcher[backend.DiskIdentity]
	snapshots backend.Watcher[backend.SnapshotIdentity]
}

// slot is one driver.
type slot struct {
	mu      sync.Mutex // held while the driver is being opened
	driver  Driver
	err     error
	retryAt time.Time
}

// NewDrivers returns the drivers with these names; the first is the default. A name without an
// opener is a driver that this program does not have, which the conditions of its machines
// report.
func NewDrivers(names []string, openers map[string]Opener, clock clock.PassiveClock) *Drivers {
	d := &Drivers{names: names, openers: openers, clock: clock, slots: map[string]*slot{}}
	for _, name := range names {
		d.slots[name] = &slot{}
	}
	return d
}

// Default returns the name of the driver for machines without spec.driver.
func (d *Drivers) Default() string { return d.names[0] }

// storeOf returns a store of a driver, such as its backend.DiskStore; nil if it has none.
func storeOf[T any](driver Driver) T {
	store, _ := driver.(T)
	return store
}

// storeIn returns the named driver that keeps something, or without a name the first one of the manager that can, and its host.
func storeIn[T any](d *Drivers, named, what string) (T, v1alpha1.Host, error) {
	var first error
	for _, name := range d.names {
		if named != "" && name != named {
			continue
		}
		driver, err := d.get(name)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		if store := storeOf[T](driver); any(store) != nil {
			host := driver.Host()
			return store, v1alpha1.Host{Driver: name, ID: host.ID, Name: host.Name}, nil
		}
	}
	if first == nil {
		first = fmt.Errorf("%w: --vm-driver=%s has no driver that keeps %s; add qemu", backend.ErrMissing, strings.Join(d.names, ","), what)
	}
	var none T
	return none, v1alpha1.Host{}, first
}

// get returns an open driver. The error is a backend.ErrMissing if there is none, or a
// backend.ErrUnavailable if it cannot be opened now.
func (d *Drivers) get(name string) (Driver, error) {
	d.mu.Lock()
	s, closed := d.slots[name], d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("driver %s: the manager is stopping: %w", name, backend.ErrUnavailable)
	}
	if err := checkDriver(name, d.names, slices.Collect(maps.Keys(d.openers))); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.driver != nil {
		return s.driver, nil
	}
	if now := d.clock.Now(); s.err == nil || !now.Before(s.retryAt) {
		s.retryAt = now.Add(reopenInterval)
		// On an error, driver may hold a nil pointer, which is not a nil Driver.
		var driver Driver
		driver, s.err = d.openers[name]()
		switch {
		case s.err == nil:
			s.driver = driver
			s.driver.Watch(d.servers.Notify)
			if store := storeOf[backend.ImageStore](driver); store != nil {
				store.WatchImages(d.images.Notify)
			}
			if store := storeOf[backend.DiskStore](driver); store != nil {
				store.WatchDisks(d.disks.Notify)
			}
			if store := storeOf[backend.SnapshotStore](driver); store != nil {
				store.WatchSnapshots(d.snapshots.Notify)
			}
		case !errors.Is(s.err, backend.ErrMissing):
			s.err = fmt.Errorf("open driver %s: %w: %w", name, backend.ErrUnavailable, s.err)
		}
	}
	return s.driver, s.err
}

// checkDriver fails if name is not in names, the drivers of the manager, or not in program, the drivers of the program.
func checkDriver(name string, names, program []string) error {
	switch {
	case !slices.Contains(names, name):
		return fmt.Errorf("%w: this manager was started with --vm-driver=%s and without %s; add it there",
			backend.ErrMissing, strings.Join(names, ","), name)
	case !slices.Contains(program, name):
		return fmt.Errorf("%w: there is no driver %s in this program; it has %s",
			backend.ErrMissing, name, strings.Join(slices.Sorted(slices.Values(program)), ", "))
	}
	return nil
}

// openAll opens all drivers and returns those that could be opened.
func (d *Drivers) openAll() []Driver {
	var all []Driver
	for _, name := range d.names {
		if driver, err := d.get(name); err == nil {
			all = append(all, driver)
		}
	}
	return all
}

// alreadyOpen returns the open drivers without opening others.
func (d *Drivers) alreadyOpen() []Driver {
	var all []Driver
	for _, name := range d.names {
		s := d.slots[name]
		if !s.mu.TryLock() {
			continue // another goroutine is opening it
		}
		if s.driver != nil {
			all = append(all, s.driver)
		}
		s.mu.Unlock()
	}
	return all
}

// Close closes all open drivers. The caller calls it after the last reconcile.
func (d *Drivers) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	var errs []error
	for _, name := range d.names {
		s := d.slots[name]
		s.mu.Lock()
		if s.driver != nil {
			if err := s.driver.Close(); err != nil {
				errs = append(errs, fmt.Errorf("close driver %s: %w", name, err))
			}
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}
