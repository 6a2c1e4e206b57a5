// Package display is the display of a machine of QEMU, as the driver qemu and the launcher of the driver pod have it: a VGA card, whose
// VNC server listens nowhere.
package display

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

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// maxScreenshot limits the size of a screenshot in bytes. QEMU, which a guest may control, decides about it.
const maxScreenshot = 64 << 20

// pngSignature begins every PNG file.
var pngSignature = []byte("\x89PNG\r\n\x1a\n")

// connections counts connections to screens, for the names of their descriptors.
var connections atomic.Uint64

// Arguments returns the arguments of QEMU for the display. Its VNC server gets connections through the monitor, see Connect. A tablet
// tells the position of the pointer; guests without a driver for it use the PS/2 mouse.
func Arguments() []string {
	return []string{"-device", "VGA,id=vga", "-device", "virtio-tablet-pci,id=tablet", "-vnc", "none,share=force-shared"}
}

// Check returns why nobody sees a machine that was started with or without a display; nil if it has one. wanted means that its spec has
// one.
func Check(started, wanted bool) error {
	switch {
	case started:
		return nil
	case wanted:
		return errors.New("it was started without a display: restart it")
	}
	return errors.New("it has no display: set spec.display.type to VGA, and restart it")
}

// Connect connects to the display of a QEMU, which gets one end of a pair of sockets. The context limits the attempt.
func Connect(ctx context.Context, conn *qmp.Client) (net.Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	name := fmt.Sprintf("screen-%d-%d", os.Getpid(), connections.Add(1))
	if err = conn.RunWithFile(ctx, "getfd", map[string]any{"fdname": name}, theirs, nil); err == nil {
		err = conn.Run(ctx, "add_client", map[string]any{"protocol": "vnc", "fdname": name, "skipauth": true}, nil)
		if err != nil {
			_ = conn.Run(context.WithoutCancel(ctx), "closefd", map[string]any{"fdname": name}, nil) // add_client may have taken it
		}
	}
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return ours, nil
}

// Screenshot returns what a display shows, as PNG. QEMU, which need not open files by name, writes it into a file in a folder, whose
// name is removed at once.
func Screenshot(ctx context.Context, conn *qmp.Client, dir string) (_ []byte, err error) {
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
	to := fmt.Sprintf("/dev/fdset/%d", added.Set)
	if err := conn.Run(ctx, "screendump", map[string]any{"filename": to, "format": "png"}, nil); err != nil {
		return nil, err
	}
	return Read(io.NewSectionReader(file, 0, maxScreenshot+1))
}

// Read reads a screenshot, and rejects anything else.
func Read(from io.Reader) ([]byte, error) {
	image, err := io.ReadAll(io.LimitReader(from, maxScreenshot+1))
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
