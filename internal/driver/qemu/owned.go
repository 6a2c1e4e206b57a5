package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/diskspace"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/process"
)

const (
	// monitorTimeout is the response timeout of a monitor.
	monitorTimeout = 5 * time.Second
	// monitorStartTimeout limits the time until QEMU opens its monitor.
	monitorStartTimeout = 30 * time.Second
	// usualBoot is how long the default guest usually needs to boot, if the machine has not booted it yet.
	usualBoot = 12 * time.Second
	// maxAddresses is the number of addresses that are reported, the limit of the API.
	maxAddresses = owner.MaxAddresses
	// A guest can change its reported state at will, and each change is written to the API. So notifications are rate limited: a short
	// burst, then one in each notifyInterval.
	notifyInterval = 5 * time.Second
	notifyBurst    = 10
)

// fullMessage is why a guest is halted whose disks have no space left, and what to do.
var fullMessage = fmt.Sprintf("the file system of its disks is full. The guest resumes when %d MiB are free: free space for the data directory "+
	"of Keelson on its host", diskspace.Enough>>20)

// watch follows a run in the background until it ends. l is its start; nil if the run is older than this manager.
func (m *machine) watch(proc *process.Process, l *launch) {
	status, found := proc.Status(), l == nil
	m.mu.Lock()
	record := m.def.Owner
	switch {
	case m.def.Asleep != nil:
		record.Memory = &m.def.Asleep.Memory
		if !found {
			record.Phase, record.Boot = owner.Loading, nil
		}
	case record.Phase == owner.Off:
		record.Phase = owner.Starting // its definition was lost
	}
	m.run, m.proc, m.startedAt = runName(status), proc, status.StartedAt
	m.usage, m.cpuSeen, m.reportedUsage, m.attached = nil, cpuTime{}, backend.Usage{}, found
	m.lastLook, m.lastActive = look{}, time.Now()
	m.guestReport = nil
	o := owner.New(m.owned(proc, l), record, l != nil && l.IsInstant())
	if found {
		m.guestReport = readGuestReport(m.dir, m.run)
		var addresses []string
		if m.guestReport != nil {
			addresses = owner.Reachable(m.guestReport.Addresses)
		}
		o.Attach(m.guestReport != nil, addresses)
	}
	m.owner = o
	m.mu.Unlock()
	o.Start()
	m.d.tasks.Go(func() {
		select {
		case <-o.Done():
			m.runEnded(proc)
		case <-m.d.ctx.Done():
			o.Close()
		}
	})
}

// owned returns what the owner of the machine's QEMU has to know; m.mu is held.
func (m *machine) owned(proc *process.Process, l *launch) owner.Machine {
	image := m.startedWith().Image
	owned := owner.Machine{
		UID: string(m.id.UID), Dir: m.dir, Memory: m.dir, PID: proc.PID(), Gone: proc.Done(), LogBytes: m.logBytes,
		NoAgent: image != nil && image.Agent != nil && !*image.Agent, Address: m.def.hardwareAddress(),
		Save: m.saveOwner, Connected: m.connected, Released: m.changeDisks, Answered: m.answered, Changed: m.ownerChanged,
		HasRoom: func([]string) bool { return diskspace.IsEnough(m.dir) },
		Full:    func([]string) string { return fullMessage },
		Log:     func(message string) { m.d.options.Log.Info(message, "machine", m.id.UID) },
		Rejected: func() string {
			if status := proc.Status(); status.ExitCode > 0 && l != nil {
				return lastOutput(l.Confinement().Named(status.LogTail))
			}
			return ""
		},
	}
	if image == nil {
		owned.UsualBoot = usualBoot
	}
	return owned
}

// logBytes returns the size of the serial log.
func (m *machine) logBytes() int64 {
	info, err := os.Stat(m.path(serialLog))
	if err != nil {
		return 0
	}
	return info.Size()
}

// saveOwner makes the record of the owner durable, together with the saved memory.
func (m *machine) saveOwner(record owner.Record) error {
	return m.record(func(def *definition) {
		def.Owner = record
		switch {
		case record.Phase != owner.Asleep && def.Asleep != nil: // its memory is used, or cannot be
			def.Asleep, def.StopRun = nil, ""
		case record.Phase == owner.Asleep && def.Asleep == nil:
			saved := *m.saving
			saved.Memory = *record.Memory
			def.Asleep, def.StopRun = &saved, saved.Run
		}
	}, func(found *definition) bool {
		return found.Owner.Phase == record.Phase && found.Owner.Owed == record.Owed && (found.Asleep == nil) == (record.Phase != owner.Asleep)
	})
}

// connected is called when the monitor answers.
func (m *machine) connected(conn *qmp.Client) {
	m.changeDisks()
	m.mu.Lock()
	attached := m.attached
	m.mu.Unlock()
	if attached {
		m.d.tasks.Go(func() {
			m.measure(nil)
			m.endOldBackups(conn)
		})
	}
}

// answered is called before the first answer of the agent counts.
func (m *machine) answered() {
	m.wantTemplate()
	m.measure(nil) // so that the first usage is written together with this
}

// ownerChanged notifies the controller of a change of the running machine.
func (m *machine) ownerChanged(byGuest bool) {
	if !byGuest {
		m.notifyChange()
		return
	}
	if state := m.state(); state.Agent == owner.AgentConnected {
		m.saveGuestReport(state.Addresses)
	}
	m.notifyGuestChange()
}

// notifyGuestChange notifies the controller of a change caused by the guest. Notifications are rate limited, but the last change is always
// reported, if necessary with a delay: one that waits reports the state at its time.
func (m *machine) notifyGuestChange() {
	_ = m.notification.Begin(m.d.ctx, &m.d.tasks, operation.Work{Do: m.notifyLimiter.Wait, Changed: m.notifyChange})
}

// runEnded records the end of the run.
func (m *machine) runEnded(proc *process.Process) {
	m.mu.Lock()
	m.recordEnd(proc.Status())
	m.run, m.startedAt = "", time.Time{}
	m.mu.Unlock()
	m.d.networks.touch(m.id.Namespace)
	m.changeDisks() // the guest holds none of them any more
	m.notifyChange()
}

// own returns the owner of the current run; nil if the machine is off.
func (m *machine) own() *owner.Owner {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == "" {
		return nil
	}
	return m.owner
}

// state returns the state of the running machine; the zero state if it is off.
func (m *machine) state() owner.State {
	if o := m.own(); o != nil {
		return o.State()
	}
	return owner.State{}
}

// monitor returns the connection to the monitor; ErrUnavailable if there is none.
func (m *machine) monitor() (*qmp.Client, error) {
	if o := m.own(); o != nil {
		if conn := o.Monitor(); conn != nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("the monitor of machine %s does not answer: %w", m.id.UID, backend.ErrUnavailable)
}

// serverState returns the state of a running machine for the controller, and why its guest does not run.
func (m *machine) serverState(state owner.State) (backend.State, string) {
	switch {
	case !state.Answers:
		return backend.StateUnknown, "the monitor has not responded yet"
	case state.Silent:
		return backend.StateUnknown, fmt.Sprintf("the monitor of QEMU (pid %d) does not answer", m.proc.PID())
	case state.Phase == owner.Starting, state.Phase == owner.Loading, state.Phase == owner.Paused, state.Paused && state.Phase != owner.Running:
		return backend.StatePaused, ""
	}
	return backend.StateRunning, state.Message
}

// saver returns how the memory of the machine is saved by write. saved gets the description.
func (m *machine) saver(saved *savedMemory, write func(context.Context, *qmp.Client, *savedmemory.Memory) error) owner.Saver {
	return owner.Saver{
		Describe: func(ctx context.Context, conn *qmp.Client) (*savedmemory.Memory, error) {
			found, err := m.describeMemory(ctx, conn)
			if err != nil {
				return nil, err
			}
			found.SleepOptions = saved.SleepOptions
			*saved = *found
			return &saved.Memory, nil
		},
		Write: write,
		Disks: func() ([]string, error) { return m.writablePaths(saved.Disks) },
	}
}

// endOldBackups removes what a manager that was killed has left of copies in QEMU.
func (m *machine) endOldBackups(conn *qmp.Client) {
	m.files.Lock()
	defer m.files.Unlock()
	ctx, cancel := context.WithTimeout(m.d.ctx, savedmemory.Timeout)
	defer cancel()
	if err := diskbackup.End(ctx, conn); err != nil && ctx.Err() == nil && !errors.Is(err, qmp.ErrClosed) {
		m.d.options.Log.Error(err, "Could not end the copies of disks that an earlier manager has begun", "machine", m.id.UID)
	}
}
