// Package signals sends signals to the processes of a test, and to no others: for
// kill(2), the pid 0 that a test has for something that does not run is the whole process
// group, with the tests themselves and what runs them.
package signals

import (
	"errors"
	"syscall"
	"testing"
)

// Send sends a signal to a process, which must be there.
func Send(t testing.TB, pid int, signal syscall.Signal) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("what %s is for does not run: its pid is %d", signal, pid)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("send %s to the process %d: %v", signal, pid, err)
	}
}

// Try sends a signal to a process that may have ended, or may not run at all: pid 0.
func Try(t testing.TB, pid int, signal syscall.Signal) {
	t.Helper()
	if pid == 0 {
		return
	}
	if pid < 0 {
		t.Fatalf("%s is for a process, and %d is none", signal, pid)
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("send %s to the process %d: %v", signal, pid, err)
	}
}
