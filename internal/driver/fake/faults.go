package fake

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Fail makes the next calls of a method return these errors, one each.
func (d *Driver) Fail(method string, errs ...error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[method] = append(d.failures[method], errs...)
}

// Calls returns the calls since the last time, as "Method name".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// SetDown makes the whole backend unreachable, or reachable again.
func (d *Driver) SetDown(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = down
}

// Hold keeps every task of this kind from completing until Release.
func (d *Driver) Hold(task backend.Task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[task] = true
}

// Release completes the tasks of this kind.
func (d *Driver) Release(task backend.Task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, task)
	for _, s := range d.servers {
		if s.Task == task && s.finish != nil {
			s.finish()
		}
	}
}

// with changes a server without the controller's knowledge.
func (d *Driver) with(uid types.UID, change func(*server)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.servers[uid]
	if s == nil {
		return
	}
	change(s)
	go d.notify(s.Identity)
}

// Boot makes the guest of a server respond.
func (d *Driver) Boot(uid types.UID) { d.with(uid, d.boot) }

// SetAgent sets the state of a server's guest agent.
func (d *Driver) SetAgent(uid types.UID, agent backend.Agent) {
	d.with(uid, func(s *server) { s.Agent = agent })
}

// SetUsage sets the resource usage of a server, in percent.
func (d *Driver) SetUsage(uid types.UID, cpu, memory float64) {
	d.with(uid, func(s *server) { s.Usage = &backend.Usage{CPU: cpu, Memory: memory} })
}

// SetActive sets when a server was last in use.
func (d *Driver) SetActive(uid types.UID, at time.Time) {
	d.with(uid, func(s *server) { s.LastActive = at })
}

// Connect connects to a server that is asleep.
func (d *Driver) Connect(uid types.UID) {
	d.with(uid, func(s *server) {
		if s.Asleep != nil && s.Asleep.WakeOnConnection {
			s.Asleep = &backend.Asleep{SleepOptions: s.Asleep.SleepOptions, Since: s.Asleep.Since, Wanted: true}
		}
	})
}

// SetProgress sets the progress of a server's task.
func (d *Driver) SetProgress(uid types.UID, progress string) {
	d.with(uid, func(s *server) { s.Progress = progress })
}

// Silence makes the monitor of a server unresponsive, or responsive again.
func (d *Driver) Silence(uid types.UID, silent bool) {
	d.with(uid, func(s *server) { s.silent = silent })
}

// Crash ends the run of a server.
func (d *Driver) Crash(uid types.UID, cause backend.Cause, message string) {
	d.with(uid, func(s *server) { d.end(s, cause, message) })
}

// FailTask fails the task of a server: one to create or to start it.
func (d *Driver) FailTask(uid types.UID, message string) {
	d.with(uid, func(s *server) {
		cause := backend.CauseCreateFailed
		if s.Task == backend.TaskStart {
			cause = backend.CauseStartFailed
		}
		s.Task, s.finish = backend.TaskNone, nil
		s.Ended = &backend.Ended{Run: d.runName(), Cause: cause, Message: message, At: d.options.Clock.Now()}
	})
}

// PendDisks sets the disks of a server whose changes are not complete.
func (d *Driver) PendDisks(uid types.UID, disks ...backend.PendingDisk) {
	d.with(uid, func(s *server) { s.Disks = disks })
}

// Expose sets where nodes reach a server while it is on.
func (d *Driver) Expose(uid types.UID, service *backend.Service) {
	d.with(uid, func(s *server) { s.Service = service })
}

// Lose drops a server.
func (d *Driver) Lose(uid types.UID) {
	d.with(uid, func(*server) { delete(d.servers, uid) })
}

// UIDs returns the UIDs of the servers, sorted.
func (d *Driver) UIDs() []types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []types.UID
	for uid := range d.servers {
		all = append(all, uid)
	}
	slices.Sort(all)
	return all
}

// Kept returns the retained disks of deleted servers, in the order of deletion.
func (d *Driver) Kept() []backend.RetainedDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.kept)
}

// Retained implements backend.Retainer.
func (d *Driver) Retained(context.Context) ([]backend.RetainedDisk, error) { return d.Kept(), nil }

// DiskUsage implements backend.DiskMeter: a tenth of each disk is in use.
func (d *Driver) DiskUsage(context.Context) (map[types.UID]backend.DiskUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[types.UID]backend.DiskUsage{}
	for uid, s := range d.servers {
		size := s.machine.DiskBytes
		for _, disk := range s.machine.Disks {
			size += disk.SizeBytes
		}
		all[uid] = backend.DiskUsage{AllocatedBytes: size / 10, VirtualBytes: size}
	}
	return all, nil
}

// Machine returns the last configuration of a server, and its seed.
func (d *Driver) Machine(uid types.UID) (backend.Machine, *backend.Seed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.servers[uid]
	if s == nil {
		return backend.Machine{}, nil
	}
	return s.configured, s.seed
}

// CallCount returns the total number of calls.
func (d *Driver) CallCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Forget resets the count of runs.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = 0
}

// LoseMemory makes the saved memory of a server that is asleep unusable: its next start discards it.
func (d *Driver) LoseMemory(uid types.UID, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers[uid].lost = why
}
