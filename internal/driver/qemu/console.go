package qemu

import (
	"context"
	"fmt"
	"io"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// Console implements backend.Consoler. QEMU serves one connection at a time, the next ones wait.
func (d *Driver) Console(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	m, err := d.find(id)
	if err != nil {
		return nil, err
	}
	if m.isOff() {
		return nil, fmt.Errorf("connect to the console of machine %s: it is off: %w", id.UID, backend.ErrUnavailable)
	}
	conn, err := qmp.DialUnix(ctx, m.path(qemu.ConsoleSocket))
	if err != nil {
		return nil, fmt.Errorf("connect to the console of machine %s: %w: %w", id.UID, backend.ErrUnavailable, err)
	}
	return conn, nil
}

// ConsoleLog implements backend.Consoler. The log is that of QEMU, which has the output of the serial line and its own
// messages.
func (d *Driver) ConsoleLog(ctx context.Context, id backend.Identity, options backend.LogOptions) (io.ReadCloser, error) {
	m, err := d.find(id)
	if err != nil {
		return nil, err
	}
	log, err := openLog(ctx, m.path(serialLog), options)
	if err != nil {
		return nil, fmt.Errorf("read the console log of machine %s: %w", id.UID, err)
	}
	return log, nil
}
