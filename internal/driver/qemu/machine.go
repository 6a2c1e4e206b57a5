package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/process"
)

type machine struct {
	d   *Driver
	id  backend.Identity
	dir string

	task operation.Slot

	mu  sync.Mutex
	def definition
	// leaving means that the machine is being removed and its process has ended: it has no place in the
	// network any more.
	leaving bool
	// taskErr is the error of the last attempt to delete the machine, until it is reported.
	taskErr error
	// failedRestore is the last attempt to restore the machine, if it failed.
	failedRestore failedRestore

	// wanted means that someone has connected to the machine since it fell asleep, and sessions is how many use it now.
	wanted   bool
	sessions int

	// saving describes the memory that is being saved; savedBytes is the size of its saved memory, also while that is incomplete.
	saving     *savedMemory
	savedBytes atomic.Int64

	// disks is the work on the disks of spec.disks.
	disks diskWork
	// files is held while the files of these disks change, and while QEMU is started with them. It is locked before mu.
	files sync.Mutex

	// The rest describes the current run; run is empty while the machine is off.
	run       string
	proc      *process.Process
	startedAt time.Time
	// owner owns its QEMU.
	owner *owner.Owner
	usage *backend.Usage
	// guestReport is the persisted report of the guest agent.
	guestReport *guestReport
	// attached means that the run is older than this manager.
	attached      bool
	cpuSeen       cpuTime
	reportedUsage backend.Usage
	// lastLook is the last look at what the machine uses, and lastActive when it was last in use.
	lastLook   look
	lastActive time.Time

	// notification is the next one about the guest; notifyLimiter limits them.
	notification  operation.Slot
	notifyLimiter *rate.Limiter
}

func newMachine(d *Driver, def definition) *machine {
	m := &machine{
		d: d, id: def.Identity, dir: filepath.Join(d.machinesDir(), string(def.UID)), def: def, disks: diskWork{changed: make(chan struct{}, 1)},
		notifyLimiter: rate.NewLimiter(rate.Every(notifyInterval), notifyBurst),
	}
	m.savedBytes.Store(def.Asleep.size())
	return m
}

// notifyChange notifies the controller of a change of the machine.
func (m *machine) notifyChange() { m.d.watcher.Notify(m.id) }

// path returns the path of a file in the folder of the machine.
func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// begin starts a task. The error is ErrInProgress if it continues in the background or is already in progress.
func (m *machine) begin(kind backend.Task, work func(context.Context) error) error {
	m.d.mu.Lock()
	closed := m.d.closed
	m.d.mu.Unlock()
	if closed {
		return fmt.Errorf("driver qemu is closed: %w", backend.ErrUnavailable)
	}
	err := m.task.Begin(m.d.ctx, &m.d.tasks, operation.Work{
		Kind: kind, Do: work, Changed: m.notifyChange,
		Ended: func(err error) {
			if err != nil {
				m.recordFailure(kind, err)
			}
		},
	})
	if err != nil && !errors.Is(err, backend.ErrInProgress) {
		return fmt.Errorf("machine %s: %w", m.id.UID, err)
	}
	return backend.ErrInProgress
}

// recordFailure records the failure of a task.
func (m *machine) recordFailure(kind backend.Task, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := &backend.Ended{Run: "attempt-" + strconv.FormatInt(time.Now().UnixNano(), 36), Message: err.Error(), At: time.Now()}
	switch kind {
	case backend.TaskCreate:
		ended.Cause = backend.CauseCreateFailed
	case backend.TaskStart:
		ended.Cause = backend.CauseStartFailed
	case backend.TaskSleep, backend.TaskRestore:
		return // those are recorded elsewhere
	default:
		m.taskErr = err
		return
	}
	m.def.Ended = ended
	m.save()
}

// save writes the definition; m.mu is held. A failure is only logged: a full disk or a removed
// folder must not prevent the stop of a machine.
func (m *machine) save() {
	if err := m.def.write(m.dir); err != nil {
		m.d.options.Log.Error(err, "Could not write the definition of a machine", "folder", m.dir)
	}
}

// progress reports the progress of the current task.
func (m *machine) progress(text string) {
	if m.task.SetProgress(text) {
		m.notifyChange()
	}
}

// snapshot returns the observed state of the machine.
func (m *machine) snapshot() backend.Server {
	var networkError, serviceError string
	if w := m.d.networks.find(m.id.Namespace); w != nil {
		networkError, serviceError = w.errorOf(m.id.UID), w.serviceErrorOf(m.id.UID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := backend.Server{
		Identity: m.id, ID: "keelson-" + string(m.id.UID), State: backend.StateStopped,
		Run: m.def.LastRun, Ended: m.def.Ended, Emulated: !m.d.kvm, Hash: m.def.Hash,
		Restored: m.def.Restored, FailedRestore: m.failedAttempt(),
	}
	s.Task, s.Progress = m.task.State()
	if m.def.Restoring != nil {
		s.Restoring = m.def.Restoring.Token
	}
	s.Disks = m.pendingDisks()
	if !m.def.Created || s.Task == backend.TaskCreate {
		s.State = backend.StateAbsent
	}
	s.Addresses = m.reportedAddresses()
	if saved := m.def.Asleep; saved != nil {
		s.Asleep = &backend.Asleep{SleepOptions: saved.SleepOptions, Since: saved.At, Wanted: m.wanted}
	}
	if m.run == "" {
		if m.def.Asleep != nil {
			s.State, s.SavedBytes = backend.StateAsleep, m.def.Asleep.Size
		}
		if m.wakesOnConnection() {
			s.Endpoints, s.Service = m.endpoints(), m.service(serviceError)
		}
		return s
	}
	state := m.owner.State()
	s.State, s.Message = m.serverState(state)
	s.Run, s.StartedAt, s.Ended = m.run, m.startedAt, nil
	if m.def.Asleep != nil && s.Task == backend.TaskNone {
		s.State, s.Message = backend.StateUnknown, "the machine is asleep, but its QEMU has not ended"
	}
	s.Agent, s.Usage, s.Silence = backend.Agent(state.Agent), m.usage, (*backend.Silence)(state.Silence)
	s.Pending = m.def.pending()
	s.NetworkError = networkError
	s.LastActive = m.lastActive
	if m.sessions > 0 {
		s.LastActive = time.Now()
	}
	s.Endpoints = m.endpoints()
	s.Service = m.service(serviceError)
	return s
}

// endpoints returns the addresses of the forwarded ports on the host; m.mu is held.
func (m *machine) endpoints() (all []v1alpha1.Endpoint) {
	for _, port := range m.startedWith().Ports {
		all = append(all, v1alpha1.Endpoint{
			Name: port.Name, Protocol: port.Protocol, Address: m.publishedAt(m.def.HostPorts[port.Name]).String(),
		})
	}
	return all
}

// reportedAddresses returns the address in the network of the namespace, which the machine has whether it is on or not, and
// then those that the guest reports; m.mu is held.
func (m *machine) reportedAddresses() []string {
	var all []string
	if m.def.Address.IsValid() {
		all = append(all, m.def.Address.String())
	}
	if m.run != "" {
		for _, address := range m.owner.State().Addresses {
			if !slices.Contains(all, address) {
				all = append(all, address)
			}
		}
	}
	return all[:min(len(all), maxAddresses)]
}

// publishedAt returns the address of a forwarded port on the host; m.mu is held.
func (m *machine) publishedAt(port int) netip.AddrPort {
	return netip.AddrPortFrom(m.d.options.publishAddress(), uint16(port)) //nolint:gosec // a port
}

// startedWith returns the machine as of its last start; m.mu is held.
func (m *machine) startedWith() *backend.Machine {
	if m.def.Started != nil {
		return m.def.Started
	}
	return &m.def.Machine
}

func (m *machine) isLeaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving
}

// isFolderMissing reports whether the folder of a machine that is off was removed.
func (m *machine) isFolderMissing() bool {
	m.mu.Lock()
	idle := m.run == "" && !m.task.Busy() && m.def.Created
	m.mu.Unlock()
	if !idle {
		return false
	}
	_, err := os.Stat(m.path(definitionFile))
	return errors.Is(err, fs.ErrNotExist)
}

// runName derives the name of a run from its start time.
func runName(status process.Status) string { return strconv.FormatInt(status.StartedAt.UnixNano(), 36) }

// attach attaches to the process of the machine when the driver is opened.
func (m *machine) attach() {
	m.settleRestore()
	m.removeOldMemory()
	proc, err := m.d.processes.Find(string(m.id.UID))
	if err != nil {
		return // no process
	}
	status := proc.Status()
	switch {
	case status.StartedAt.IsZero():
	case status.State == process.Running || status.State == process.Starting:
		m.watch(proc, nil)
		m.endIfAsleep()
		m.endIfWaiting()
	case m.def.LastRun != runName(status):
		m.mu.Lock()
		m.recordEnd(status)
		m.mu.Unlock()
	}
}

// removeOldMemory removes what a manager that was killed has left of saved memory.
func (m *machine) removeOldMemory() {
	if m.def.Asleep == nil {
		savedmemory.Remove(m.dir)
		return
	}
	_ = os.Remove(m.path(savedmemory.Part))
}

// hasResponded reports whether the monitor of a machine that is on has responded, and its guest agent, if it listens and has never
// responded to a manager.
func (m *machine) hasResponded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.disks.unchecked || m.run == "" {
		return !m.disks.unchecked
	}
	state := m.owner.State()
	return state.Answers && (!state.Listens || state.Agent != owner.AgentWaiting)
}

// recordEnd records the end of a run; m.mu is held.
func (m *machine) recordEnd(status process.Status) {
	run := runName(status)
	m.def.Ended = endOf(status)
	m.def.Ended.Run = run
	ended, isRequested := m.def.Owner.Ended, m.def.StopRun == run
	isLost := ended != nil && ended.Cause == owner.CauseMemoryLost
	switch {
	case isRequested && m.def.Unsaved != "":
		m.def.Ended.Cause, m.def.Ended.Message = backend.CauseMemoryLost, m.def.Unsaved
	case isRequested && !isLost:
		m.def.Ended.Cause, m.def.Ended.Message = backend.CauseRequested, ""
	case ended != nil:
		m.def.Ended.Cause, m.def.Ended.Message, m.def.Ended.At = backend.Cause(ended.Cause), ended.Message, ended.At
	}
	if m.def.Owner.Phase != owner.Asleep {
		m.def.Owner = owner.Record{BootTime: m.def.Owner.BootTime}
	}
	m.def.Unsaved = ""
	m.def.Ended.StartedAt = status.StartedAt
	m.def.LastRun = run
	m.save()
}

// endOf derives the end of a run from the status of its process.
func endOf(status process.Status) *backend.Ended {
	ended := &backend.Ended{Cause: backend.CauseHost, At: status.EndedAt}
	switch {
	case status.State == process.Lost:
		ended.At, ended.Message = time.Now(), "the process ended unobserved; perhaps the host was restarted"
	case status.Signal != "":
		ended.Message = "the process was killed by " + status.Signal
	case status.ExitCode != 0:
		ended.Cause, ended.Message = backend.CauseError, fmt.Sprintf("QEMU exited with code %d: %s", status.ExitCode, lastOutput(status.LogTail))
	default:
		ended.Message = "QEMU quit on request"
	}
	return ended
}
