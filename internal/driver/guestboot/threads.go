// Package guestboot keeps guests from hanging at boot, on a host and in a Pod.
package guestboot

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// The first version of QEMU without a race of its translator: before, a processor could translate code while another one patched it,
// and execute the translation of the old code from then on. Linux patches its code at boot, and guests hung now and then. The commits
// "accel/tcg: Split out cpu_exec_longjmp_cleanup" and "accel/tcg: Always lock pages before translation" have removed it.
const fixedMajor, fixedMinor = 8, 1

// Fixed is that version, for messages.
const Fixed = "8.1"

var versionForm = regexp.MustCompile(`version (\d+)\.(\d+)`)

// CanHang reports whether emulated guests with several processors may hang with a thread for each of them. version is what QEMU prints
// about its version; one that is not known can.
func CanHang(version string) bool {
	found := versionForm.FindStringSubmatch(version)
	if found == nil {
		return true
	}
	major, _ := strconv.Atoi(found[1]) // digits
	minor, _ := strconv.Atoi(found[2])
	return major < fixedMajor || major == fixedMajor && minor < fixedMinor
}

// Threads returns the property thread of the accelerator tcg for a guest with so many processors: a thread for each processor, or a
// single one for all, which cannot race.
func Threads(version string, cpus int64) string {
	if cpus > 1 && CanHang(version) {
		return "single"
	}
	return "multi"
}

// versionTimeout limits the time in which QEMU prints its version.
const versionTimeout = 10 * time.Second

// Version returns what a QEMU prints about its version; empty if it does not.
func Version(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	return string(out)
}
