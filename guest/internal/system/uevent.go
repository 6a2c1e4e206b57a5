package system

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Uevent is what the kernel says when a device comes, goes or changes: "add",
// "remove", "change" and so on.
type Uevent struct {
	Action string
	// Path is the device's folder below /sys.
	Path string
	// Subsystem is the kind of device: virtio, net, block, input, cpu, memory, ...
	Subsystem string
	// Alias finds the module that drives it; empty for most.
	Alias string
}

// coldBuses are those whose devices may need a module that the guest has.
var coldBuses = []string{"acpi", "pci", "platform", "virtio"}

// coldClasses hold the devices that the guest itself uses.
var coldClasses = []string{"virtio-ports", "input", "block", "net"}

// coldDevices are CPUs and blocks of memory, which may have come before we listened.
var coldDevices = []string{"cpu", "memory"}

// Watch calls handle for every device that is there, as if it came now, then settled,
// and then handle for every event until ctx ends. An event that comes during the first
// part is not lost; a device may be announced twice. There is one call at a time.
func Watch(ctx context.Context, handle func(Uevent), settled func()) error {
	// The group is 1: what the kernel says itself.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("listening for devices: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "uevents")
	defer socket.Close()
	// Whole buses may come at once.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20); err != nil {
		return fmt.Errorf("listening for devices: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		return fmt.Errorf("listening for devices: %w", err)
	}
	present("/sys", handle)
	settled()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()
	message := make([]byte, 16<<10)
	for {
		n, err := socket.Read(message)
		switch {
		case ctx.Err() != nil:
			return nil
		case overflowed(err):
			// Some were lost: look at everything again.
			present("/sys", handle)
		case err != nil:
			return fmt.Errorf("listening for devices: %w", err)
		default:
			if event, ok := parseUevent(message[:n]); ok {
				handle(event)
			}
		}
	}
}

// AnnounceFound calls handle for the disks and network interfaces that are there, as if they came now. Their drivers are
// loaded.
func AnnounceFound(handle func(Uevent)) {
	for _, class := range []string{"block", "net"} {
		announce("/sys", class, "class/"+class+"/*", handle)
	}
}

// parseUevent reads ACTION@PATH and KEY=VALUE words, each ended by a zero byte.
func parseUevent(message []byte) (Uevent, bool) {
	head, rest, _ := bytes.Cut(message, []byte{0})
	action, path, ok := strings.Cut(string(head), "@")
	if !ok {
		return Uevent{}, false
	}
	event := Uevent{Action: action, Path: path}
	for word := range strings.SplitSeq(string(rest), "\x00") {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "SUBSYSTEM":
			event.Subsystem = value
		case "MODALIAS":
			event.Alias = value
		}
	}
	return event, true
}

// present announces the devices that root, which is /sys, has now. virtio comes last
// of the buses: loading the driver of a virtio bus brings its devices.
func present(root string, handle func(Uevent)) {
	for _, bus := range coldBuses {
		announce(root, bus, "bus/"+bus+"/devices/*", handle)
	}
	for _, class := range coldClasses {
		announce(root, class, "class/"+class+"/*", handle)
	}
	for _, kind := range coldDevices {
		announce(root, kind, "devices/system/"+kind+"/"+kind+"[0-9]*", handle)
	}
}

// announce announces the devices of a kind below root that match a pattern.
func announce(root, kind, pattern string, handle func(Uevent)) {
	paths, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is ours, so it is not malformed
	for _, path := range paths {
		device, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue // gone in the meantime
		}
		alias, err := fs.ReadFile(os.DirFS(device), "modalias")
		if err != nil {
			alias = nil // most have none
		}
		handle(Uevent{
			Action: "add", Path: strings.TrimPrefix(device, root), Subsystem: kind,
			Alias: strings.TrimSpace(string(alias)),
		})
	}
}
