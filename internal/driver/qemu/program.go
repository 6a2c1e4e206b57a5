package qemu

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Missing returns a backend.ErrMissing that names what is not installed; nil if nothing is missing.
func Missing() error {
	_, err := find(Program(), "qemu-system-x86")
	if err == nil {
		_, err = find("qemu-img", "qemu-utils")
	}
	return err
}

// Program returns the name of the QEMU program for machines of this host's architecture.
func Program() string { return "qemu-system-" + arch() }

// find returns the path of a program; pkg is its Debian package.
func find(program, pkg string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%w: %s is not installed: %w. On Debian and Ubuntu: apt-get install %s qemu-utils",
			backend.ErrMissing, program, err, pkg)
	}
	return path, nil
}

// arch returns QEMU's name for the architecture of this host.
func arch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}
