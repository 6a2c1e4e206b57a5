package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Numbers of the pidfd calls: the same on all architectures of Go, and missing in package syscall.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434

	idTypePidfd = 3 // P_PIDFD of waitid(2)
	pollIn      = 1 // POLLIN of poll(2)
)

// openPidfd is replaced in tests to simulate a kernel without pidfd.
var openPidfd = func(pid int) (int, error) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// handle refers to one process that was verified to be ours. It is safe against reuse of the pid: signals and waits
// go to the pidfd. Without pidfd (Linux before 5.3, some sandboxes) the identity is verified before each signal
// instead, and the wait polls.
type handle struct {
	id     identity
	marker string
	file   *os.File // the pidfd, nil without one
	once   sync.Once
	closed chan struct{}
}

// openHandle returns nil if the process is gone or the pid belongs to another process.
func openHandle(id identity, marker string) *handle {
	h := &handle{id: id, marker: marker, closed: make(chan struct{})}
	if fd, err := openPidfd(id.PID); err == nil {
		// Only a non-blocking descriptor works with the runtime's poller, where waiting costs no thread.
		if err := syscall.SetNonblock(fd, true); err == nil {
			h.file = os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", id.PID))
		} else {
			_ = syscall.Close(fd)
		}
	}
	// The identity is read after the pidfd was opened: if the pid is ours now, it was ours then.
	if !isAlive(id, marker) {
		h.close()
		return nil
	}
	return h
}

// signal sends sig; ErrNotFound if the process is gone.
func (h *handle) signal(sig syscall.Signal) error {
	if h.file == nil {
		if !isAlive(h.id, h.marker) {
			return ErrNotFound
		}
		return goneIsNotFound(syscall.Kill(h.id.PID, sig))
	}
	conn, err := h.file.SyscallConn()
	if err != nil {
		return ErrClosed
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		if isReadable(fd) {
			result = ErrNotFound // a zombie would accept the signal
			return
		}
		if _, _, errno := syscall.Syscall6(sysPidfdSendSignal, fd, uintptr(sig), 0, 0, 0, 0); errno != 0 {
			result = goneIsNotFound(errno)
		}
	})
	if err != nil {
		return ErrClosed // there is no other reason
	}
	return result
}

// wait returns true when the process is gone or a zombie, false when the handle was closed or the limit has
// passed. 0 means no limit. Only one goroutine may wait at a time, because the limit is a deadline of the file.
func (h *handle) wait(limit time.Duration) bool {
	if h.file == nil {
		return h.poll(limit)
	}
	conn, err := h.file.SyscallConn()
	if err != nil {
		return false
	}
	deadline := time.Time{}
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	if err := h.file.SetReadDeadline(deadline); err != nil {
		return h.poll(limit) // the poller does not support it
	}
	return conn.Read(isReadable) == nil
}

// isReadable reports whether the process of a pidfd has ended.
func isReadable(fd uintptr) bool {
	poll := struct {
		fd      int32
		events  int16
		revents int16
	}{fd: int32(fd), events: pollIn}
	n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1,
		uintptr(unsafe.Pointer(&syscall.Timespec{})), 0, 0, 0)
	return errno == 0 && n == 1
}

// poll implements wait without pidfd.
func (h *handle) poll(limit time.Duration) bool {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var end <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		end = timer.C
	}
	for isAlive(h.id, h.marker) {
		select {
		case <-ticker.C:
		case <-end:
			return false
		case <-h.closed:
			return false
		}
	}
	return true
}

// reap reaps the zombie if the process was our child; otherwise it does nothing.
func (h *handle) reap() {
	if h.file == nil {
		if s, err := readStat(h.id.PID); err == nil && s.gone && s.start == h.id.Start {
			_, _ = syscall.Wait4(h.id.PID, nil, syscall.WNOHANG, nil)
		}
		return
	}
	conn, err := h.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall6(syscall.SYS_WAITID, idTypePidfd, fd, 0, syscall.WEXITED|syscall.WNOHANG, 0, 0)
	})
}

// close makes wait return. It may be called more than once.
func (h *handle) close() {
	h.once.Do(func() {
		close(h.closed)
		if h.file != nil {
			_ = h.file.Close() // nothing is ever written to a pidfd
		}
	})
}

func goneIsNotFound(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return ErrNotFound
	}
	return err
}
