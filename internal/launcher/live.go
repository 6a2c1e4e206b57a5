package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// serveMemory sets how much of its memory the guest has: the rest is in the balloon. The guest must be able to boot with it.
func (l *launcher) serveMemory(w http.ResponseWriter, r *http.Request) {
	l.change(w, r, func(bytes int64) error {
		if err := guestimage.CheckMemory(l.ready.tell().MinimumMemory, bytes); err != nil {
			return refusal{err}
		}
		return l.runFor(r, "balloon", map[string]any{"value": bytes})
	})
}

// serveGrow grows a disk. It never shrinks one.
func (l *launcher) serveGrow(w http.ResponseWriter, r *http.Request) {
	l.change(w, r, func(bytes int64) error {
		disks, name := l.definition.AllDisks(), r.URL.Query().Get(DiskParameter)
		i := slices.IndexFunc(disks, func(disk Disk) bool { return disk.Name == name })
		if i < 0 {
			return fmt.Errorf("the machine was started without a disk %q", name)
		}
		path := l.diskPath(disks[i])
		size, err := virtualSize(path)
		if err != nil || size >= bytes {
			return err
		}
		if err := hasRoom(filepath.Dir(path), bytes); err != nil {
			return err
		}
		return l.runFor(r, "block_resize", map[string]any{"node-name": qemu.DiskNode(name), "size": bytes})
	})
}

// servePorts makes the ports of the guest those of the request.
func (l *launcher) servePorts(w http.ResponseWriter, r *http.Request) {
	var wanted []Port
	for _, text := range r.URL.Query()[PortParameter] {
		port, err := parsePort(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		wanted = append(wanted, port)
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.guest() == nil {
		http.Error(w, errNoGuest.Error(), http.StatusServiceUnavailable)
		return
	}
	refused, err := l.setPorts(r.Context(), wanted)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case refused != "":
		http.Error(w, refused, http.StatusBadGateway)
	}
}

// servePower serves the wish that the machine is paused, or runs.
func (l *launcher) servePower(power owner.Power) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := errNoGuest
		if o := l.guest(); o != nil {
			err = o.Switch(r.Context(), power)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// change serves a change of the running machine to a number of bytes, one at a time.
func (l *launcher) change(w http.ResponseWriter, r *http.Request, do func(bytes int64) error) {
	bytes, err := strconv.ParseInt(r.URL.Query().Get(BytesParameter), 10, 64)
	if err != nil || bytes <= 0 {
		http.Error(w, "the number of bytes must be positive", http.StatusBadRequest)
		return
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if err := do(bytes); err != nil {
		status := http.StatusServiceUnavailable
		if errors.As(err, new(refusal)) {
			status = http.StatusBadGateway
		}
		http.Error(w, err.Error(), status)
	}
}

// refusal is why a change is never made.
type refusal struct{ error }

// runFor runs a command of QEMU for a request.
func (l *launcher) runFor(r *http.Request, command string, arguments map[string]any) error {
	return l.access.ask(r, func(ctx context.Context, monitor *qmp.Client) error {
		return monitor.Run(ctx, command, arguments, nil)
	})
}

// hasRoom returns an error if the file system of a folder is smaller than a disk of a size: its volume is being expanded.
func hasRoom(dir string, bytes int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return err
	}
	if size := int64(fs.Blocks) * fs.Bsize; size < bytes { //nolint:gosec // no file system is that large
		return errors.New("the file system of its volume has not grown yet")
	}
	return nil
}
