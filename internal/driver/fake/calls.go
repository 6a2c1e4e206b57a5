package fake

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Validate rejects what this driver does not simulate. The error is a *backend.FieldError.
func Validate(machine *backend.Machine) error {
	if image := machine.Image; image != nil && image.Container != "" {
		return &backend.FieldError{Field: "spec.image.container", Message: "the driver fake runs no containers"}
	}
	if machine.Display != "" {
		return &backend.FieldError{Field: "spec.display", Message: "the driver fake has no displays; remove the field"}
	}
	return machine.RejectPodFields()
}

// Create implements backend.Driver.
func (d *Driver) Create(_ context.Context, machine backend.Machine) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Create", machine.Identity); err != nil {
		return err
	}
	if err := Validate(&machine); err != nil {
		return err
	}
	s := d.servers[machine.UID]
	if s == nil {
		s = &server{Server: backend.Server{Identity: machine.Identity, ID: "fake-" + string(machine.UID), State: backend.StateAbsent}}
		d.servers[machine.UID] = s
	}
	if s.State != backend.StateAbsent {
		return nil
	}
	s.Ended = nil
	s.define(machine)
	return d.do(s, backend.TaskCreate, func() { s.State = backend.StateStopped })
}

// define sets the spec of a server.
func (s *server) define(machine backend.Machine) {
	if machine.KeepsSeed {
		machine.Seed = s.seed
	}
	s.machine, s.configured, s.seed, s.Hash, s.Pending = machine, machine, machine.Seed, machine.Hash, nil
}

// Start implements backend.Driver.
func (d *Driver) Start(_ context.Context, machine backend.Machine) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Start", machine.Identity); err != nil {
		return err
	}
	s, err := d.find(machine.Identity)
	if err != nil || s.IsOn() {
		return err
	}
	if s.State == backend.StateAsleep && s.lost != "" {
		why := s.lost
		s.lost = ""
		return d.do(s, backend.TaskStart, func() { d.loseMemory(s, why) })
	}
	if s.State == backend.StateAsleep {
		machine = s.machine // it goes on as it was
	} else {
		machine.Image = s.machine.Image // the disk was created from it
		s.define(machine)
	}
	return d.do(s, backend.TaskStart, func() {
		s.SavedBytes, s.Asleep, s.LastActive = 0, nil, d.options.Clock.Now()
		s.State, s.Run, s.StartedAt, s.Ended = backend.StateRunning, d.runName(), d.options.Clock.Now(), nil
		s.Agent, s.Endpoints = backend.AgentWaiting, endpoints(machine.Ports)
		if image := machine.Image; image != nil && image.Agent != nil && !*image.Agent {
			s.Agent = backend.AgentNone
		}
		switch boot := d.options.BootTime; {
		case boot == 0:
			d.boot(s)
		case boot > 0:
			run := s.Run
			d.options.Clock.AfterFunc(boot, func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				if s.Run == run && s.IsOn() {
					d.boot(s)
					go d.notify(s.Identity)
				}
			})
		}
	})
}

// loseMemory leaves a server that was asleep off.
func (d *Driver) loseMemory(s *server, why string) {
	s.Ended = nil
	d.end(s, backend.CauseMemoryLost, why)
	s.Ended.Run = "memory-" + s.Run
}

// boot makes the guest respond.
func (d *Driver) boot(s *server) {
	if s.Agent == backend.AgentWaiting {
		s.Agent, s.Addresses = backend.AgentConnected, []string{"10.0.2.15"}
	}
	s.Usage = &backend.Usage{CPU: 1, Memory: 10, CPUSeconds: 1, ResidentBytes: s.machine.MemoryBytes / 10, GuestBytes: s.machine.MemoryBytes / 10, At: d.options.Clock.Now()}
}

// end powers a server off.
func (d *Driver) end(s *server, cause backend.Cause, message string) {
	if s.IsOn() || s.Ended == nil {
		s.Ended = &backend.Ended{Run: s.Run, StartedAt: s.StartedAt, At: d.options.Clock.Now()}
	}
	s.Ended.Cause, s.Ended.Message = cause, message
	s.State, s.StartedAt, s.Agent, s.Addresses, s.Endpoints, s.Usage = backend.StateStopped, time.Time{}, backend.AgentNone, nil, nil, nil
	s.SavedBytes, s.Asleep, s.LastActive = 0, nil, time.Time{}
}

// Stop implements backend.Driver.
func (d *Driver) Stop(_ context.Context, id backend.Identity, _ time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Stop", id); err != nil {
		return err
	}
	s, err := d.find(id)
	if err != nil || s.State == backend.StateAbsent {
		return err
	}
	if s.State == backend.StateStopped {
		d.end(s, backend.CauseRequested, "stopped as requested")
		return nil
	}
	return d.do(s, backend.TaskStop, func() { d.end(s, backend.CauseRequested, "stopped as requested") })
}

// Pause implements backend.Driver.
func (d *Driver) Pause(_ context.Context, id backend.Identity) error {
	return d.change("Pause", id, backend.StateRunning, backend.StatePaused)
}

// Sleep implements backend.Driver.
func (d *Driver) Sleep(_ context.Context, id backend.Identity, options backend.SleepOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Sleep", id); err != nil {
		return err
	}
	s, err := d.find(id)
	if err != nil || !s.IsOn() {
		if err == nil && s.Asleep != nil {
			s.Asleep = &backend.Asleep{SleepOptions: options, Since: s.Asleep.Since}
			go d.notify(id)
		}
		return err
	}
	return d.do(s, backend.TaskSleep, func() {
		d.end(s, backend.CauseRequested, "asleep as requested")
		s.State, s.SavedBytes = backend.StateAsleep, s.machine.MemoryBytes/8
		s.Asleep = &backend.Asleep{SleepOptions: options, Since: d.options.Clock.Now()}
	})
}

// Resume implements backend.Driver.
func (d *Driver) Resume(_ context.Context, id backend.Identity) error {
	return d.change("Resume", id, backend.StatePaused, backend.StateRunning)
}

func (d *Driver) change(call string, id backend.Identity, from, to backend.State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(call, id); err != nil {
		return err
	}
	s, err := d.find(id)
	if err != nil {
		return err
	}
	switch s.State {
	case from:
		s.State = to
		go d.notify(id)
	case to:
	default:
		return fmt.Errorf("cannot %s server %s in state %s", call, id.UID, s.State)
	}
	return nil
}

// Reconfigure implements backend.Driver. Memory changes immediately; the rest is pending.
func (d *Driver) Reconfigure(_ context.Context, machine backend.Machine) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Reconfigure", machine.Identity); err != nil {
		return err
	}
	s, err := d.find(machine.Identity)
	if err != nil {
		return err
	}
	machine.Image = s.machine.Image // the disk was created from it
	s.configured, s.Hash = machine, machine.Hash
	if !s.IsOn() {
		if s.State != backend.StateAsleep {
			s.define(machine)
		}
		return nil
	}
	s.machine.MemoryBytes, s.machine.Disks, s.Pending = machine.MemoryBytes, machine.Disks, nil
	if s.machine.MilliCPU != machine.MilliCPU {
		s.Pending = append(s.Pending, "resource.cpu")
	}
	go d.notify(machine.Identity)
	return nil
}

// Delete implements backend.Driver.
func (d *Driver) Delete(_ context.Context, id backend.Identity, options backend.DeleteOptions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Delete", id); err != nil {
		return err
	}
	s := d.servers[id.UID]
	if s == nil {
		return nil
	}
	return d.do(s, backend.TaskDelete, func() {
		delete(d.servers, id.UID)
		if options.KeepDisk {
			d.kept = append(d.kept, backend.RetainedDisk{Namespace: id.Namespace, Name: id.Name})
		}
		for _, disk := range s.machine.Disks {
			if options.KeepAll || slices.Contains(options.KeepDisks, disk.Name) {
				d.kept = append(d.kept, backend.RetainedDisk{Namespace: id.Namespace, Name: id.Name, Path: disk.Name})
			}
		}
	})
}

// Dial implements backend.Dialer: there is no guest to connect to.
func (d *Driver) Dial(_ context.Context, id backend.Identity, _ uint16) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("Dial", id); err != nil {
		return nil, err
	}
	if _, err := d.find(id); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: the driver fake only pretends to run machines, which cannot be connected to", backend.ErrInvalid)
}
