package qemu

import (
	"context"
	"fmt"
	"io"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/display"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// Screen implements backend.Screener.
func (d *Driver) Screen(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	conn, _, err := d.displayMonitor(id)
	if err != nil {
		return nil, fmt.Errorf("connect to the screen of machine %s: %w", id.UID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	screen, err := display.Connect(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("connect to the screen of machine %s: %w: %w", id.UID, backend.ErrUnavailable, err)
	}
	return screen, nil
}

// Screenshot implements backend.Screener.
func (d *Driver) Screenshot(ctx context.Context, id backend.Identity) ([]byte, error) {
	conn, dir, err := d.displayMonitor(id)
	if err != nil {
		return nil, fmt.Errorf("take a screenshot of machine %s: %w", id.UID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	image, err := display.Screenshot(ctx, conn, dir)
	if err != nil {
		return nil, fmt.Errorf("take a screenshot of machine %s: %w: %w", id.UID, backend.ErrUnavailable, err)
	}
	return image, nil
}

// displayMonitor returns the monitor and the folder of a running machine with a display.
func (d *Driver) displayMonitor(id backend.Identity) (conn *qmp.Client, dir string, err error) {
	m, err := d.find(id)
	if err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	isOn, started, wanted := m.run != "", m.startedWith().Display, m.def.Display
	m.mu.Unlock()
	if !isOn {
		return nil, "", fmt.Errorf("it is off: %w", backend.ErrUnavailable)
	}
	if err := display.Check(started != "", wanted != ""); err != nil {
		return nil, "", fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	conn, err = m.monitor()
	return conn, m.dir, err
}
