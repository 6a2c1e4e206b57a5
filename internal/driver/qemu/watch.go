package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskspace"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/process"
)

const (
	// monitorTimeout is the response timeout of a monitor.
	monitorTimeout = 5 * time.Second
	// monitorStartTimeout limits the time until QEMU opens its monitor.
	monitorStartTimeout = 30 * time.Second
	// floodDelay is the delay before reconnecting to a monitor that floods the manager with events.
	// Its machine does not count as unknown in the meantime.
	floodDelay = 3 * time.Second
)

// fullMessage is why a guest is halted whose disks have no space left, and what to do.
var fullMessage = fmt.Sprintf("the file system of its disks is full. The guest goes on when %d MiB are free: free space for the data directory "+
	"of Keelson on its host", diskspace.Enough>>20)

// newDialBackoff returns the backoff of connection attempts to a monitor.
func newDialBackoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: math.MaxInt32, Cap: time.Second}
}

// checkInterval is the interval of monitor checks. Tests shorten it.
var checkInterval = 20 * time.Second

// watch follows a run in the background until it ends. found means that the run is older than this
// manager.
func (m *machine) watch(proc *process.Process, found bool) {
	status := proc.Status()
	m.mu.Lock()
	m.run, m.proc, m.startedAt = runName(status), proc, status.StartedAt
	m.power, m.message, m.agent, m.addresses, m.usage = backend.StateUnknown, "the monitor has not responded yet", backend.AgentNone, nil, nil
	m.cpuSeen, m.reportedUsage, m.attached, m.halted = cpuTime{}, backend.Usage{}, found, false
	m.lastLook, m.lastActive, m.ran = look{}, time.Now(), 0
	m.bootClock = guestboot.Clock{PID: proc.PID()}
	m.guestReport, m.awaitingAgent, m.failedSleep, m.moving = nil, false, failedSleep{}, false
	if image := m.startedWith().Image; image == nil || image.Agent == nil || *image.Agent {
		m.agent = backend.AgentWaiting
		if found {
			m.restoreGuestReport()
		}
	}
	m.mu.Unlock()
	m.d.tasks.Go(func() {
		m.followMonitor(proc)
		select {
		case <-proc.Done():
			m.runEnded(proc)
		default: // the driver is closed
		}
	})
}

// runEnded records the end of the run.
func (m *machine) runEnded(proc *process.Process) {
	m.mu.Lock()
	m.stopAgent()
	m.recordEnd(proc.Status())
	m.run, m.conn, m.startedAt = "", nil, time.Time{}
	m.mu.Unlock()
	m.d.networks.touch(m.id.Namespace)
	m.changeDisks() // the guest holds none of them any more
	m.notifyChange()
}

// followMonitor stays connected to the monitor, reconnecting if necessary, until the process ends.
func (m *machine) followMonitor(proc *process.Process) {
	backoff := newDialBackoff()
	begun := time.Now()
	for {
		conn, err := m.dial()
		if err == nil {
			backoff = newDialBackoff()
			if err = m.handleEvents(proc, conn); err != nil {
				m.d.options.Log.V(1).Info("Lost the connection to a monitor", "machine", m.id.UID, "why", err.Error())
			}
			begun = time.Now()
		}
		pause := backoff.Step()
		if errors.Is(err, qmp.ErrFlood) {
			pause = floodDelay // refresh then queries what was missed
		}
		if m.d.ctx.Err() != nil {
			return
		}
		if timeout := time.Since(begun); timeout > monitorTimeout {
			m.setPower(backend.StateUnknown, fmt.Sprintf("the monitor of QEMU (pid %d) does not answer", proc.PID()))
		}
		timer := time.NewTimer(pause)
		select {
		case <-proc.Done():
			timer.Stop()
			return
		case <-m.d.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// dial connects to the monitor and verifies that it belongs to this machine.
func (m *machine) dial() (*qmp.Client, error) {
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	path, release, err := shortPath(m.path(qemu.MonitorSocket))
	if err != nil {
		return nil, err
	}
	conn, err := qmp.Dial(ctx, path)
	release()
	if err != nil {
		return nil, err
	}
	var got struct{ UUID string }
	if err := conn.Run(ctx, "query-uuid", nil, &got); err != nil {
		conn.Close()
		return nil, err
	}
	if got.UUID != string(m.id.UID) {
		conn.Close()
		return nil, fmt.Errorf("the monitor belongs to machine %s", got.UUID)
	}
	return conn, nil
}

// handleEvents handles the events of a monitor until it closes or the process ends.
func (m *machine) handleEvents(proc *process.Process, conn *qmp.Client) error {
	m.mu.Lock()
	m.conn = conn
	m.mu.Unlock()
	defer func() {
		conn.Close()
		m.mu.Lock()
		m.conn = nil
		m.mu.Unlock()
	}()
	if err := m.check(conn); err != nil {
		return err
	}
	m.changeDisks()
	m.mu.Lock()
	attached := m.attached
	m.mu.Unlock()
	if attached {
		m.d.tasks.Go(func() { m.endOldBackups(conn) })
	}
	check, boot := time.NewTicker(checkInterval), time.NewTicker(bootInterval)
	defer check.Stop()
	defer boot.Stop()
	dropped := 0
	for {
		select {
		case event, open := <-conn.Events():
			if !open {
				return qmp.ErrClosed
			}
			if err := m.handleEvent(conn, event); err != nil {
				return err
			}
			if event.Name == "RESET" {
				boot.Reset(bootInterval)
			}
		case <-boot.C:
			again, err := m.watchBoot(conn, bootInterval)
			if err != nil {
				return err
			}
			if !again {
				boot.Stop()
			}
		case <-check.C:
			if m.isMoving() {
				continue
			}
			if err := m.check(conn); err != nil {
				return err
			}
			if n := conn.Dropped(); n > dropped {
				m.d.options.Log.Info("Events of a machine were dropped", "machine", m.id.UID, "count", n-dropped)
				dropped = n
			}
		case <-proc.Done():
			return nil
		case <-m.d.ctx.Done():
			return nil
		}
	}
}

// check checks the machine periodically. It resumes a halted machine if the host seems to have
// room. The next check shows whether that was enough; until then the machine counts as halted, so
// that its message does not flap.
func (m *machine) check(conn *qmp.Client) error {
	m.mu.Lock()
	halted := m.halted
	m.halted = false
	m.mu.Unlock()
	if err := m.refresh(conn); err != nil {
		m.mu.Lock()
		m.halted = halted
		m.mu.Unlock()
		return err
	}
	m.mu.Lock()
	halted = m.halted
	m.mu.Unlock()
	m.endIfAsleep()
	m.bootIfUnnamed()
	if !halted || !diskspace.IsEnough(m.dir) {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	return connectionError(conn.Run(ctx, "cont", nil, nil))
}

// refresh queries the state that events report, in case some were missed.
func (m *machine) refresh(conn *qmp.Client) error {
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	var status struct{ Status string }
	if err := conn.Run(ctx, "query-status", nil, &status); err != nil {
		return err
	}
	var devices []struct {
		Label string
		Open  bool `json:"frontend-open"`
	}
	if err := conn.Run(ctx, "query-chardev", nil, &devices); err != nil {
		return err
	}
	for _, device := range devices {
		if device.Label == qemu.AgentChardev {
			m.setAgentOpen(device.Open)
		}
	}
	switch status.Status {
	case "running":
		m.mu.Lock()
		halted := m.halted
		m.mu.Unlock()
		if !halted {
			m.setPower(backend.StateRunning, "")
		}
	case "shutdown":
		m.guestEnded(conn, backend.CauseGuestShutdown)
	case "guest-panicked":
		m.guestEnded(conn, backend.CauseGuestPanic)
	case "internal-error":
		m.guestEnded(conn, backend.CauseError)
	case "io-error":
		// QEMU reports other errors of a disk to the guest.
		m.mu.Lock()
		m.halted = true
		m.mu.Unlock()
		m.setPower(backend.StateRunning, fullMessage)
	default:
		m.setPower(backend.StatePaused, "")
	}
	return nil
}

// connectionError returns err if it means that the connection is unusable, else nil.
func connectionError(err error) error {
	var refused *qmp.Error
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// handleEvent handles an event.
func (m *machine) handleEvent(conn *qmp.Client, event qmp.Event) error {
	switch event.Name {
	case "STOP", "RESUME", "BLOCK_IO_ERROR":
		if m.isMoving() {
			return nil
		}
		return m.refresh(conn)
	case "GUEST_PANICKED":
		m.guestEnded(conn, backend.CauseGuestPanic)
	case "SHUTDOWN":
		var data struct {
			Guest  bool
			Reason string
		}
		if err := json.Unmarshal(event.Data, &data); err != nil {
			return fmt.Errorf("event SHUTDOWN: %w", err)
		}
		switch data.Reason {
		case "guest-panic":
			m.guestEnded(conn, backend.CauseGuestPanic)
		case "guest-shutdown":
			m.guestEnded(conn, backend.CauseGuestShutdown)
		}
		// Other reasons end the process, which is observed separately.
	case "RESET":
		m.guestReset()
		m.mu.Lock()
		changed := m.agent == backend.AgentConnected || m.agent == backend.AgentLost
		if changed {
			m.agent = backend.AgentWaiting
		}
		m.awaitingAgent = false
		m.mu.Unlock()
		if changed {
			m.notifyGuestChange()
		}
	case "DEVICE_DELETED":
		m.changeDisks()
	case "VSERPORT_CHANGE":
		var data struct{ Open bool }
		if err := json.Unmarshal(event.Data, &data); err != nil {
			return fmt.Errorf("event VSERPORT_CHANGE: %w", err)
		}
		m.setAgentOpen(data.Open)
	}
	return nil
}

// guestEnded records the end of the guest, and makes the waiting QEMU quit.
func (m *machine) guestEnded(conn *qmp.Client, cause backend.Cause) {
	m.mu.Lock()
	if m.def.Ended == nil || m.def.Ended.Run != m.run {
		m.def.Ended = &backend.Ended{Run: m.run, Cause: cause, At: time.Now(), StartedAt: m.startedAt}
		m.save()
	}
	m.mu.Unlock()
	step("guest ended")
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	// If this fails, the connection is closed, and the next check comes here again.
	_ = conn.Run(ctx, "quit", nil, nil)
}

// setPower records the power state of the machine.
func (m *machine) setPower(power backend.State, message string) {
	m.mu.Lock()
	changed := m.power != power || m.message != message
	m.power, m.message = power, message
	m.mu.Unlock()
	if changed {
		m.notifyChange()
	}
}

// monitor returns the connection to the monitor; ErrUnavailable if there is none.
func (m *machine) monitor() (*qmp.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return nil, fmt.Errorf("the monitor of machine %s does not answer: %w", m.id.UID, backend.ErrUnavailable)
	}
	return m.conn, nil
}
