package launcher

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// monitorTimeout is the response timeout of QEMU.
	monitorTimeout = 10 * time.Second
	// dialInterval is the interval of attempts to connect to a QEMU that is starting.
	dialInterval = 5 * time.Millisecond
)

// dialMonitor connects to the monitor of QEMU, which may still be starting, until ctx ends: the guest does not run yet.
func (l *launcher) dialMonitor(ctx, running context.Context) (*qmp.Client, error) {
	for {
		dialing, cancel := context.WithTimeout(running, monitorTimeout)
		stop := context.AfterFunc(ctx, cancel)
		conn, err := qmp.Dial(dialing, filepath.Join(l.dirs.Run, qemu.MonitorSocket))
		stop()
		cancel()
		if err == nil {
			return conn, nil
		}
		select {
		case <-running.Done():
			return nil, errNeverAnswered
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(dialInterval):
		}
	}
}

// call runs a command of QEMU. The error means that the connection is unusable.
func call(conn *qmp.Client, command string) error {
	ctx, cancel := context.WithTimeout(context.Background(), monitorTimeout)
	defer cancel()
	err := conn.Run(ctx, command, nil, nil)
	var refused *qmp.Error
	if errors.As(err, &refused) {
		return nil
	}
	return err
}
