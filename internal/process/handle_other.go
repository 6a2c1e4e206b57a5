//go:build !linux

package process

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// verifyEvery is the interval at which wait verifies that the pid was not reused, which costs a run of ps.
const verifyEvery = 50

// handle refers to one process that was verified to be ours. There is no pidfd here: the identity is verified
// before each signal, and the wait polls.
type handle struct {
	id     identity
	marker string
	once   sync.Once
	closed chan struct{}
}

// openHandle returns nil if the process is gone or the pid belongs to another process.
func openHandle(id identity, marker string) *handle {
	if !isAlive(id, marker) {
		return nil
	}
	return &handle{id: id, marker: marker, closed: make(chan struct{})}
}

// signal sends sig; ErrNotFound if the process is gone.
func (h *handle) signal(sig syscall.Signal) error {
	if !isAlive(h.id, h.marker) {
		return ErrNotFound
	}
	if err := syscall.Kill(h.id.PID, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return ErrNotFound
}

// wait returns true when the process is gone, false when the handle was closed or the limit has passed. 0 means
// no limit.
func (h *handle) wait(limit time.Duration) bool {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var end <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		end = timer.C
	}
	for n := 0; ; n++ {
		// A child of our own stays a zombie, and its pid taken, until it is reaped.
		h.reap()
		if !pidAlive(h.id.PID) || n%verifyEvery == 0 && !isAlive(h.id, h.marker) {
			return true
		}
		select {
		case <-ticker.C:
		case <-end:
			return false
		case <-h.closed:
			return false
		}
	}
}

// reap reaps the zombie if the process was our child; otherwise it does nothing.
func (h *handle) reap() {
	_, _ = syscall.Wait4(h.id.PID, nil, syscall.WNOHANG, nil)
}

// close makes wait return. It may be called more than once.
func (h *handle) close() { h.once.Do(func() { close(h.closed) }) }
