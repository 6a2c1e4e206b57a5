package signals

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

const ptraceSeize = 0x4206 // PTRACE_SEIZE of ptrace(2), missing in package syscall

// KillSlowly kills a process and suspends it during its exit: it cannot survive, but still has its
// files, locks and ports. On a busy machine that takes a moment; here it lasts until finish is
// called or the test ends.
func KillSlowly(t testing.TB, pid int) (finish func()) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("the process to kill is not running: its pid is %d", pid)
	}
	held, release, released := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(released)
		// Only the thread that traces a process can detach from it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := killAndHold(pid)
		held <- err
		if err == nil {
			<-release
			_ = syscall.PtraceDetach(pid) // best effort
		}
	}()
	var once sync.Once
	finish = func() {
		once.Do(func() { close(release) })
		<-released
	}
	t.Cleanup(finish)
	if err := <-held; err != nil {
		t.Fatalf("kill the process %d and suspend its exit: %v", pid, err)
	}
	return finish
}

// killAndHold kills a process and returns once its first thread has begun to exit and is suspended
// there.
func killAndHold(pid int) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceSeize, uintptr(pid), 0, syscall.PTRACE_O_TRACEEXIT, 0, 0)
	if errno != 0 {
		return errno
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WALL, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case !status.Stopped():
			return fmt.Errorf("it has ended without a stop (%#x)", status)
		case status.TrapCause() == syscall.PTRACE_EVENT_EXIT:
			return nil
		default: // an earlier signal; SIGKILL is delivered after it
		}
	}
}
