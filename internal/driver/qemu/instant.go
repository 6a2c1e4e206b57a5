package qemu

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// entropyBytes is the number of random bytes that a guest gets from its host.
const entropyBytes = 64

func newEntropy() []byte {
	entropy := make([]byte, entropyBytes)
	_, _ = rand.Read(entropy) // it never fails
	return entropy
}

// startOnce starts QEMU, from a template if that is allowed and there is one. The error is a savedmemory.UnusableError if the template
// cannot be used.
func (m *machine) startOnce(ctx context.Context, machine backend.Machine, instant bool) error {
	var from *template
	var memory *os.File
	l, proc, err := m.launch(ctx, func(ctx context.Context) (*launch, error) {
		return m.prepare(ctx, machine, func(l *launch) (isInstant bool) {
			if !instant || !m.d.options.InstantStart {
				return false
			}
			var why error
			if from, memory, why = m.d.templates.find(l); why != nil {
				m.d.options.Log.V(1).Info("A machine boots", "machine", m.id.UID, "why", why.Error())
			}
			return from != nil
		})
	})
	if memory != nil {
		defer memory.Close()
	}
	if err != nil {
		return err
	}
	defer m.connect(ctx)()
	confinement, _ := l.confinement()
	err = m.waitUp(ctx, proc, confinement)
	if err == nil && from != nil {
		if err = m.loadTemplate(ctx, from, memory); savedmemory.IsUnusable(err) {
			m.d.templates.drop(from)
		}
	}
	return err
}

// loadTemplate makes the guest of a new QEMU that of a template. The error is a savedmemory.UnusableError if the machine has to boot
// instead.
func (m *machine) loadTemplate(ctx context.Context, from *template, memory *os.File) error {
	conn, err := m.monitor()
	if err != nil {
		return savedmemory.Unusable("%v", err)
	}
	m.setMoving(true)
	err = loadFile(ctx, conn, from, memory)
	m.setMoving(false)
	if err == nil {
		step("template loaded")
		err = conn.Run(ctx, "cont", nil, nil)
	}
	if err == nil {
		step("template continued")
		err = m.refresh(conn)
	}
	if err != nil && ctx.Err() == nil {
		return savedmemory.Unusable("%v", err)
	}
	return err
}

// loadFile makes a QEMU that waits for it load the memory of a template.
func loadFile(ctx context.Context, conn *qmp.Client, from *template, memory *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, savedmemory.Timeout)
	defer cancel()
	version, err := savedmemory.Version(ctx, conn)
	if err != nil {
		return err
	}
	if version != from.QEMU {
		return fmt.Errorf("QEMU %s made it, and this is %s", from.QEMU, version)
	}
	if err := savedmemory.BeginLoading(ctx, conn, memory); err != nil {
		return err
	}
	return savedmemory.AwaitLoaded(ctx, conn)
}

// wantTemplate has the template for machines like this one made, whose guest has booted.
func (m *machine) wantTemplate() {
	if m.d.options.InstantStart {
		m.d.templates.want(m.wakingLaunch())
	}
}

// startGuest tells a guest that was started from a template that it is a machine. Until then it has neither read its seed
// nor used its disks or its network.
func (m *machine) startGuest(ctx context.Context, conn *qmp.Client) error {
	m.mu.Lock()
	waits := m.def.GuestWaits
	m.mu.Unlock()
	if !waits {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	if err := conn.Run(ctx, "keelson-start", map[string]any{"entropy": newEntropy()}, nil); err != nil {
		m.d.options.Log.Error(err, "Could not start the guest of a machine that was started from a template; retrying", "machine", m.id.UID)
		return err
	}
	step("guest started")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.def.GuestWaits = false
	m.save()
	return nil
}

// endIfWaiting ends the QEMU of a machine whose guest waits: the manager that started it was killed in between. The guest has
// not begun, so that nothing is lost.
func (m *machine) endIfWaiting() {
	m.mu.Lock()
	waits := m.def.GuestWaits && m.run != "" && m.task == nil
	m.mu.Unlock()
	if waits {
		_ = m.begin(backend.TaskStart, m.endQEMU) // it continues in the background
	}
}
