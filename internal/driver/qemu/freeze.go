package qemu

import (
	"context"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// freeze has the agent of a running guest freeze its file systems, so that everything that was written to them is on the disks. Without
// an agent that can, nothing happens. thaw has to be called after it, whether it has succeeded or not.
func (m *machine) freeze(ctx context.Context) {
	m.mu.Lock()
	agent, isRunning := m.agentConn, m.power == backend.StateRunning && !m.halted
	m.mu.Unlock()
	if agent == nil || !isRunning {
		return
	}
	// The next manager thaws them.
	if err := m.recordFrozen(true); err != nil {
		m.d.options.Log.Error(err, "The file systems of a guest are not frozen", "machine", m.id.UID)
		return
	}
	step("freeze recorded")
	if err := diskbackup.Freeze(ctx, agent); err != nil {
		m.d.options.Log.V(1).Info("The agent of a guest does not freeze its file systems", "machine", m.id.UID, "why", err.Error())
		return
	}
	step("guest frozen")
}

// thaw thaws the file systems of the guest, if they may be frozen. It reports whether they were frozen until then.
func (m *machine) thaw(ctx context.Context) bool {
	m.mu.Lock()
	agent := m.agentConn
	m.mu.Unlock()
	if agent == nil {
		return false // its next connection thaws them
	}
	wasFrozen, err := m.thawWith(context.WithoutCancel(ctx), agent)
	if err != nil {
		m.d.options.Log.Error(err, "The file systems of a guest may be frozen; retrying", "machine", m.id.UID)
		agent.Close()
	}
	return wasFrozen
}

// thawWith is thaw with a connection to the agent.
func (m *machine) thawWith(ctx context.Context, agent *qmp.Client) (wasFrozen bool, err error) {
	m.mu.Lock()
	mayBeFrozen := m.def.GuestFrozen
	m.mu.Unlock()
	if !mayBeFrozen {
		return false, nil
	}
	if wasFrozen, err = diskbackup.Thaw(ctx, agent); err != nil {
		return false, err
	}
	step("guest thawed")
	return wasFrozen, m.recordFrozen(false)
}

func (m *machine) recordFrozen(frozen bool) error {
	return m.record(func(def *definition) { def.GuestFrozen = frozen }, func(found *definition) bool { return found.GuestFrozen == frozen })
}
