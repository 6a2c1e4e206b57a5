package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
)

// maxScreenshot limits the size of a screenshot in bytes. QEMU, which a guest may control, decides about it.
const maxScreenshot = 64 << 20

// pngSignature begins every PNG file.
var pngSignature = []byte("\x89PNG\r\n\x1a\n")

// screens counts connections to screens, for the names of their descriptors.
var screens atomic.Uint64

// displayArguments returns the arguments for the display. Its VNC server listens nowhere: it gets connections through the
// monitor, see Screen. A tablet tells the position of the pointer; guests without a driver for it use the PS/2 mouse.
func (l *launch) displayArguments() []string {
	if l.machine.Display != v1alpha1.DisplayVGA {
		return nil
	}
	return []string{"-device", "VGA,id=vga", "-device", "virtio-tablet-pci,id=tablet", "-vnc", "none,share=force-shared"}
}

// Screen implements backend.Screener. QEMU gets one end of a pair of sockets.
func (d *Driver) Screen(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	conn, _, err := d.displayMonitor(id)
	if err != nil {
		return nil, fmt.Errorf("connect to the screen of machine %s: %w", id.UID, err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("connect to the screen of machine %s: %w", id.UID, err)
	}
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	name := fmt.Sprintf("screen-%d-%d", os.Getpid(), screens.Add(1))
	if err = conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": name}, theirs, nil); err == nil {
		err = conn.Run(ctx, "add_client", map[string]any{"protocol": "vnc", "fdname": name, "skipauth": true}, nil)
		if err != nil {
			_ = conn.Run(context.WithoutCancel(ctx), "closefd", map[string]any{"fdname": name}, nil) // add_client may have taken it
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the screen of machine %s: %w: %w", id.UID, backend.ErrUnavailable, err), ours.Close())
	}
	return ours, nil
}

// Screenshot implements backend.Screener.
func (d *Driver) Screenshot(ctx context.Context, id backend.Identity) ([]byte, error) {
	conn, dir, err := d.displayMonitor(id)
	if err != nil {
		return nil, fmt.Errorf("take a screenshot of machine %s: %w", id.UID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	image, err := takeScreenshot(ctx, conn, dir)
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
	switch {
	case !isOn:
		return nil, "", fmt.Errorf("it is off: %w", backend.ErrUnavailable)
	case started == "" && wanted != "":
		return nil, "", fmt.Errorf("%w: it was started without a display: restart it", backend.ErrInvalid)
	case started == "":
		return nil, "", fmt.Errorf("%w: it has no display: set spec.display.type to vga, and restart it", backend.ErrInvalid)
	}
	conn, err = m.monitor()
	return conn, m.dir, err
}

// takeScreenshot returns what a display shows, as PNG. QEMU, which opens no files by name, writes it into a file in a folder,
// whose name is removed at once.
func takeScreenshot(ctx context.Context, conn *qmp.Client, dir string) (_ []byte, err error) {
	file, err := os.CreateTemp(dir, "screenshot-")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// QEMU takes only a descriptor that cannot be read.
	writable, err := os.OpenFile(file.Name(), os.O_WRONLY, 0)
	if err = errors.Join(err, os.Remove(file.Name())); err != nil {
		return nil, err
	}
	defer writable.Close()
	var added struct {
		Set int `json:"fdset-id"`
	}
	if err := conn.RunWithFile(ctx, "add-fd", map[string]any{"opaque": "screenshot"}, writable, &added); err != nil {
		return nil, err
	}
	defer func() {
		removeErr := conn.Run(context.WithoutCancel(ctx), "remove-fd", map[string]any{"fdset-id": added.Set}, nil)
		err = errors.Join(err, removeErr)
	}()
	if err := conn.Run(ctx, "screendump", map[string]any{"filename": fdSetPath(added.Set), "format": "png"}, nil); err != nil {
		return nil, err
	}
	image, err := io.ReadAll(io.NewSectionReader(file, 0, maxScreenshot+1))
	switch {
	case err != nil:
		return nil, err
	case len(image) > maxScreenshot:
		return nil, fmt.Errorf("it has more than %d MiB", maxScreenshot>>20)
	case !bytes.HasPrefix(image, pngSignature):
		return nil, errors.New("QEMU did not write a PNG")
	}
	return image, nil
}

// socketPair returns two connected sockets: one for this process, and one to pass on.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // no child inherits them
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("create sockets: %w", err)
	}
	kept, theirs := os.NewFile(uintptr(pair[0]), "screen"), os.NewFile(uintptr(pair[1]), "screen")
	defer kept.Close()
	if ours, err = net.FileConn(kept); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}
