// Package signals sends signals to processes of a test and to no others. For kill(2), pid 0, a
// test's value for a process that is not running, is the whole process group with the tests and
// their parent.
package signals

import (
	"errors"
	"syscall"
	"testing"
)

// Send sends a signal to a running process.
func Send(t testing.TB, pid int, signal syscall.Signal) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("the process for %s is not running: its pid is %d", signal, pid)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("send %s to the process %d: %v", signal, pid, err)
	}
}

// Try sends a signal to a process that may have ended, or is not running: pid 0.
func Try(t testing.TB, pid int, signal syscall.Signal) {
	t.Helper()
	if pid == 0 {
		return
	}
	if pid < 0 {
		t.Fatalf("%d is not a process for %s", pid, signal)
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("send %s to the process %d: %v", signal, pid, err)
	}
}
