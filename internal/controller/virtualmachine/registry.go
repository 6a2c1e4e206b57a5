package virtualmachine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Driver is what makes machines real.
type Driver = backend.Driver

// reopenPause is how long the error of a driver that could not be opened holds.
const reopenInterval = 5 * time.Second

// Opener opens a driver. The error is a backend.ErrMissing if something is not
// installed, a backend.ErrUnavailable if it may help to try again.
type Opener func() (Driver, error)

// Drivers are the drivers of a manager. Each is opened when it is first asked for,
// which is not before the manager is the leader.
type Drivers struct {
	names   []string
	openers map[string]Opener
	clock   clock.PassiveClock

	mu     sync.Mutex
	closed bool
	slots  map[string]*slot
	notify func(backend.Identity)
}

// slot is one driver.
type slot struct {
	mu      sync.Mutex // held while it is opened
	driver  Driver
	err     error
	retryAt time.Time
}

// NewDrivers returns the drivers of these names; the first is the one of machines that
// name none. Names without an opener are drivers that this program does not have:
// machines say so.
func NewDrivers(names []string, openers map[string]Opener, clock clock.PassiveClock) *Drivers {
	d := &Drivers{names: names, openers: openers, clock: clock, slots: map[string]*slot{}, notify: func(backend.Identity) {}}
	for _, name := range names {
		d.slots[name] = &slot{}
	}
	return d
}

// Default returns the name of the driver of machines that name none.
func (d *Drivers) Default() string { return d.names[0] }

// watch sets the function that is told of changes in any driver.
func (d *Drivers) watch(notify func(backend.Identity)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notify = notify
}

// tell passes a change on.
func (d *Drivers) notifyWatcher(id backend.Identity) {
	d.mu.Lock()
	notify := d.notify
	d.mu.Unlock()
	notify(id)
}

// get returns an open driver. The error is a backend.ErrMissing if there is none, a
// backend.ErrUnavailable if it cannot be opened at the moment.
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
		// What comes with an error may be a nil pointer, which is no nil Driver.
		var driver Driver
		driver, s.err = d.openers[name]()
		switch {
		case s.err == nil:
			s.driver = instrument(driver)
			s.driver.Watch(d.notifyWatcher)
		case !errors.Is(s.err, backend.ErrMissing):
			s.err = fmt.Errorf("open driver %s: %w: %w", name, backend.ErrUnavailable, s.err)
		}
	}
	return s.driver, s.err
}

// lacking says why there is no driver of this name in a manager with some drivers of those that the program has; nil if
// there is.
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

// opened returns the drivers; those that are not open yet are opened if that is possible.
func (d *Drivers) openAll() []Driver {
	var all []Driver
	for _, name := range d.names {
		if driver, err := d.get(name); err == nil {
			all = append(all, driver)
		}
	}
	return all
}

// present returns the drivers that are open already.
func (d *Drivers) alreadyOpen() []Driver {
	var all []Driver
	for _, name := range d.names {
		s := d.slots[name]
		if !s.mu.TryLock() {
			continue // it is being opened
		}
		if s.driver != nil {
			all = append(all, s.driver)
		}
		s.mu.Unlock()
	}
	return all
}

// Close closes all drivers that are open, after the last reconcile.
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
