//go:build !linux

package process

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// verifyEvery is how often the wait makes sure that the pid still means the same process; that costs a run of ps.
const verifyEvery = 50

// handle names one process that was found to be ours. There is no pidfd here: the identity is verified before each
// signal, and the wait polls.
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

// wait returns true when the process is gone, false when the handle was closed or the time is over. A limit of 0
// means none.
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

// reap takes the zombie away if the process was a child of ours; otherwise it does nothing.
func (h *handle) reap() {
	_, _ = syscall.Wait4(h.id.PID, nil, syscall.WNOHANG, nil)
}

// close makes wait return. It may be called again.
func (h *handle) close() { h.once.Do(func() { close(h.closed) }) }
