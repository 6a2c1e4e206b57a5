package qemu

import (
	"context"
	"fmt"
	"os"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// startOnce starts QEMU, from a template if that is allowed and there is one. The error is a savedmemory.UnusableError if the template
// cannot be used.
func (m *machine) startOnce(ctx context.Context, machine backend.Machine, instant bool) error {
	var from *template
	var shared *sharedMemory
	l, proc, err := m.launch(ctx, func(ctx context.Context) (*launch, error) {
		return m.prepare(ctx, machine, func(l *launch) string {
			if !instant || !m.d.instant {
				return ""
			}
			var why error
			if from, shared, why = m.d.templates.find(l); why != nil {
				m.d.options.Log.V(1).Info("A machine boots", "machine", m.id.UID, "why", why.Error())
				return ""
			}
			return memoryPath(shared.memory)
		})
	})
	if shared != nil {
		defer shared.close()
	}
	if err != nil {
		return err
	}
	defer m.connect(ctx)()
	confinement := l.Confinement()
	err = m.waitUp(ctx, proc, confinement)
	if from == nil {
		return err
	}
	if err != nil && ctx.Err() == nil {
		err = savedmemory.Unusable("%v", err) // QEMU may start with memory of its own
	}
	if err == nil {
		err = m.loadTemplate(ctx, from, shared.devices)
	}
	if savedmemory.IsUnusable(err) {
		m.d.templates.drop(from)
	}
	return err
}

// loadTemplate makes the guest of a new QEMU, which has the memory of a template, go on where that was. The error is a
// savedmemory.UnusableError if the machine has to boot instead.
func (m *machine) loadTemplate(ctx context.Context, from *template, devices *os.File) error {
	o := m.own()
	if o == nil {
		return savedmemory.Unusable("QEMU has ended")
	}
	err := o.Load(ctx, func(ctx context.Context, conn *qmp.Client) error {
		if err := loadDevices(ctx, conn, from.QEMU, devices); err != nil && ctx.Err() == nil {
			return savedmemory.Unusable("%v", err)
		} else if err != nil {
			return err
		}
		step("template loaded")
		return nil
	})
	if err != nil && ctx.Err() == nil {
		return savedmemory.Unusable("%v", err)
	}
	return err
}

// loadDevices makes a QEMU that waits for it load the state of devices that another QEMU, of the version madeBy, has saved: its memory has the
// content that fits.
func loadDevices(ctx context.Context, conn *qmp.Client, madeBy string, devices *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, savedmemory.Timeout)
	defer cancel()
	version, err := savedmemory.Version(ctx, conn)
	if err != nil {
		return err
	}
	if version != madeBy {
		return fmt.Errorf("QEMU %s made it, and this is %s", madeBy, version)
	}
	if err := ignoreShared(ctx, conn, true); err != nil {
		return err
	}
	if err := savedmemory.BeginLoading(ctx, conn, devices); err != nil {
		return err
	}
	if err := savedmemory.AwaitLoaded(ctx, conn); err != nil {
		return err
	}
	return ignoreShared(ctx, conn, false) // the machine may sleep
}

// ignoreShared sets whether QEMU leaves out memory that is in a file when it saves, and does not expect it when it loads.
func ignoreShared(ctx context.Context, conn *qmp.Client, on bool) error {
	return conn.Run(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []any{map[string]any{"capability": "x-ignore-shared", "state": on}},
	}, nil)
}

// wantTemplate has the template for machines like this one made, whose guest has booted.
func (m *machine) wantTemplate() {
	if m.d.instant {
		m.d.templates.want(m.wakingLaunch())
	}
}

// endIfWaiting ends the QEMU of a machine whose guest waits: the manager that started it was killed in between. The guest has
// not begun, so that nothing is lost.
func (m *machine) endIfWaiting() {
	m.mu.Lock()
	waits := m.def.Owner.Phase == owner.Starting && m.def.Owner.Owed.Start && m.run != "" && !m.task.Busy()
	m.mu.Unlock()
	if waits {
		_ = m.begin(backend.TaskStart, m.endQEMU) // it continues in the background
	}
}
