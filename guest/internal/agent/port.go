package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// PortName is the name of the virtio-serial port on which hosts look for an agent.
const PortName = "org.qemu.guest_agent.0"

// writeTimeout bounds a write to a host that has stopped reading. The answer is then
// lost, which the host notices by guest-sync.
const writeTimeout = 5 * time.Second

// reconnectInterval is how often a port without a host is looked at, should the
// kernel's signal get lost.
const reconnectInterval = time.Second

// ServePort answers on a virtio port, file, until ctx ends or the port goes away.
// Hosts may connect and disconnect; while none is there, reading gives the end of the
// file at once, and the kernel says with SIGIO when that changes.
func ServePort(ctx context.Context, file string, guest Guest) error {
	port, err := os.OpenFile(file, os.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGIO)
	defer signal.Stop(changed)
	if err := askForSignals(port); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { port.Close() })
	defer stop()
	for {
		err := Serve(timedWriter{port}, guest)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(reconnectInterval):
		}
	}
}

// askForSignals makes the kernel send SIGIO when a host connects or disconnects.
func askForSignals(port *os.File) error {
	raw, err := port.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if _, failed = unix.FcntlInt(fd, unix.F_SETOWN, os.Getpid()); failed != nil {
			return
		}
		var flags int
		if flags, failed = unix.FcntlInt(fd, unix.F_GETFL, 0); failed == nil {
			_, failed = unix.FcntlInt(fd, unix.F_SETFL, flags|unix.O_ASYNC)
		}
	})
	return errors.Join(err, failed)
}

type timedWriter struct{ *os.File }

func (w timedWriter) Write(p []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return w.File.Write(p)
}
