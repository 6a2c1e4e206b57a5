package qemu

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// bootInterval is the interval of looks at a guest that boots.
	bootInterval = 2 * time.Second
	// usualBoot is how long the default guest usually needs to boot, if the machine has not booted it yet.
	usualBoot = 12 * time.Second
)

// booting is a boot whose guest may not have said anything yet. It is written before the guest boots.
type booting struct {
	// LogBytes is the size of the serial log at its beginning.
	LogBytes int64 `json:"logBytes,omitempty"`
	backend.Silence
}

// logBytes returns the size of the serial log.
func (m *machine) logBytes() int64 {
	info, err := os.Stat(m.path(serialLog))
	if err != nil {
		return 0
	}
	return info.Size()
}

// bootBegins notes what QEMU itself has printed at its start.
func (m *machine) bootBegins() {
	bytes := m.logBytes()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.def.Booting != nil {
		m.def.Booting = &booting{LogBytes: bytes}
	}
}

// guestReset notes that a guest that has booted boots again. A firmware that resets the machine has not said anything by that.
func (m *machine) guestReset() {
	bytes := m.logBytes()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.def.Booting == nil {
		m.ran, m.def.Booting = 0, &booting{LogBytes: bytes}
	}
}

// boot returns what is known of the guest that boots; m.mu is held.
func (m *machine) boot(logBytes int64) guestboot.Boot {
	b := guestboot.Boot{Usual: m.def.BootTime, Ran: m.ran, Resets: m.def.Booting.Resets}
	if m.startedWith().Image == nil {
		b.Usual = cmp.Or(b.Usual, usualBoot)
	}
	// A guest that waits to become a machine has its agent connected all along.
	b.Spoke = !m.def.GuestWaits && (logBytes != m.def.Booting.LogBytes || m.agentStop != nil || m.awaitingAgent || m.agent == backend.AgentLost)
	return b
}

// hasBooted notes how long the guest has needed to boot. Only a guest that writes on its console can be told from one that hangs at the
// next boot: others may have much to do before their agent starts. The next write of the definition persists it. m.mu is held.
func (m *machine) hasBooted(logBytes int64) {
	switch booting := m.def.Booting; {
	case booting == nil:
	case m.def.MemoryShared, m.attached: // it was not seen to boot
	case logBytes == booting.LogBytes:
		m.def.BootTime = 0
	default:
		m.def.BootTime = max(m.def.BootTime, m.ran, bootInterval)
	}
	m.def.Booting = nil
}

// watchBoot looks after a guest that boots, once in an interval, and resets it if it probably hangs. It returns whether to look again.
func (m *machine) watchBoot(conn *qmp.Client, interval time.Duration) (again bool, err error) {
	bytes := m.logBytes()
	m.mu.Lock()
	was := m.def.Booting
	if was == nil || was.GaveUp {
		m.mu.Unlock()
		return false, nil
	}
	if m.power != backend.StateRunning || m.halted || m.moving || m.task != nil {
		m.mu.Unlock()
		return true, nil
	}
	m.ran += m.bootClock.Tick(interval)
	b := m.boot(bytes)
	decision := guestboot.Decide(b)
	switch decision {
	case guestboot.Leave:
		// The boot of a guest with an agent ends when that answers.
		if again = m.agent == backend.AgentWaiting || !b.Spoke; !again {
			m.hasBooted(bytes)
		}
	case guestboot.Wait:
		again = true
	case guestboot.Reset:
		again = true
		m.ran, m.def.GuestWaits = 0, false // a guest that was to become a machine boots as one
		m.def.Booting = &booting{LogBytes: bytes, Silence: backend.Silence{Resets: b.Resets + 1, After: b.Limit()}}
		m.save()
	case guestboot.GiveUp:
		m.def.BootTime = 0 // if it is not the default guest, nobody knows whether it will ever speak
		m.def.Booting = &booting{LogBytes: bytes, Silence: backend.Silence{Resets: b.Resets, After: b.Limit(), GaveUp: true}}
		m.save()
	}
	m.mu.Unlock()
	if decision == guestboot.Wait || decision == guestboot.Leave {
		return again, nil
	}
	m.notifyChange()
	if decision == guestboot.GiveUp {
		return false, nil
	}
	m.d.options.Log.Info("A guest that said nothing is reset", "machine", m.id.UID, "after", b.Limit().String(), "resets", b.Resets+1)
	step("silent guest recorded")
	ctx, cancel := context.WithTimeout(m.d.ctx, monitorTimeout)
	defer cancel()
	return true, connectionError(conn.Run(ctx, "system_reset", nil, nil))
}

// silence describes a guest that was reset because it was silent, and has not spoken since; nil otherwise. m.mu is held.
func (m *machine) silence() *backend.Silence {
	if m.run == "" || m.def.Booting == nil || m.def.Booting.Resets == 0 || m.agent != backend.AgentWaiting {
		return nil
	}
	silence := m.def.Booting.Silence
	return &silence
}
