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

// KillSlowly kills a process and holds it up while it dies: nothing can save it, but it has not given up its files, locks
// and ports yet. On a busy machine that takes a moment, and here until letGo is called, or the test ends.
func KillSlowly(t testing.TB, pid int) (letGo func()) {
	t.Helper()
	if pid <= 0 {
		t.Fatalf("what is to be killed does not run: its pid is %d", pid)
	}
	held, release, released := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(released)
		// Only the thread that holds a process can let it go.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := killAndHold(pid)
		held <- err
		if err == nil {
			<-release
			_ = syscall.PtraceDetach(pid) // there is nothing else that it could do
		}
	}()
	var once sync.Once
	letGo = func() {
		once.Do(func() { close(release) })
		<-released
	}
	t.Cleanup(letGo)
	if err := <-held; err != nil {
		t.Fatalf("kill the process %d and hold it up: %v", pid, err)
	}
	return letGo
}

// killAndHold returns when the first thread of a process that was killed has begun to exit, and has been stopped there.
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
			return fmt.Errorf("it has ended at once (%#x)", status)
		case status.TrapCause() == syscall.PTRACE_EVENT_EXIT:
			return nil
		default: // by a signal that came before; SIGKILL goes on with it
		}
	}
}
