// Package system does what the first process of a Linux system has to: file systems,
// devices as they come, orphans, and the end.
package system

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

const noProgram = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

// mounts are the file systems of a Linux system, in order.
var mounts = []mount{
	{"proc", "/proc", "proc", noProgram, ""},
	{"sys", "/sys", "sysfs", noProgram, ""},
	{"dev", "/dev", "devtmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0755"},
	{"pts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
	{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
}

// links are the names that programs expect in /dev.
var links = map[string]string{
	"/dev/fd":     "/proc/self/fd",
	"/dev/stdin":  "/proc/self/fd/0",
	"/dev/stdout": "/proc/self/fd/1",
	"/dev/stderr": "/proc/self/fd/2",
}

// Targets are the top directories on which Mount mounts something.
func Targets() []string {
	var top []string
	for _, m := range mounts {
		if strings.Count(m.target, "/") == 1 {
			top = append(top, m.target)
		}
	}
	return top
}

// Mount mounts the file systems that every program expects. It goes on where one
// fails and returns all errors.
func Mount() error {
	var errs []error
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("mounting %s on %s: %w", m.kind, m.target, err))
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
