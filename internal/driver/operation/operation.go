// Package operation runs what drivers do in the background: one operation at a time for each object, with progress, which can be
// cancelled, and the failure of the last one. A deletion replaces any other operation.
package operation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Slot has the operation of an object, if one is running, and the failure of the last one. The zero value has none. It calls no function
// while it is locked, so its methods may be called with the lock of the object held.
type Slot struct {
	mu      sync.Mutex
	current *operation
	failed  failure
}

// Work is what an operation does.
type Work struct {
	// Kind is empty for objects with one kind of operations.
	Kind     backend.Task
	Progress string
	// Do does the work.
	Do func(context.Context) error
	// Ended is called with the error of Do before the operation counts as ended, unless it was replaced. An error after it was
	// cancelled counts as none. It may be nil.
	Ended func(error)
	// Changed is called when it has ended. It may be nil.
	Changed func()
}

type failure struct {
	kind backend.Task
	at   time.Time
	err  error
}

type operation struct {
	kind     backend.Task
	progress string
	cancel   context.CancelFunc
	done     chan struct{}
}

// Begin begins an operation, which ends with ctx, in a goroutine of all. The error is ErrInProgress if one of its kind is running. If
// one of another kind is, TaskDelete cancels it, and begins when that has ended; for others it is an error.
func (s *Slot) Begin(ctx context.Context, all *sync.WaitGroup, w Work) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous := s.current
	switch {
	case previous == nil:
	case previous.kind == w.Kind:
		return backend.ErrInProgress
	case w.Kind != backend.TaskDelete:
		return fmt.Errorf("the task %s is still running", previous.kind)
	default:
		previous.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &operation{kind: w.Kind, progress: w.Progress, cancel: cancel, done: make(chan struct{})}
	s.current, s.failed = o, failure{}
	all.Go(func() {
		defer cancel()
		if previous != nil {
			<-previous.done
		}
		err := w.Do(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		if w.Ended != nil && s.is(o) {
			w.Ended(err)
		}
		s.mu.Lock()
		if s.current == o {
			s.current, s.failed = nil, failure{w.Kind, time.Now(), err}
		}
		s.mu.Unlock()
		close(o.done)
		if w.Changed != nil {
			w.Changed()
		}
	})
	return nil
}

// is reports whether an operation was not replaced.
func (s *Slot) is(o *operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current == o
}

// State returns the kind and the progress of the operation that is running; TaskNone if none is.
func (s *Slot) State() (kind backend.Task, progress string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return backend.TaskNone, ""
	}
	return s.current.kind, s.current.progress
}

// Busy reports whether an operation is running.
func (s *Slot) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil
}

// Failure returns why and when the last operation has failed. The error is nil if it has not, if it was of another kind, or if another one
// has begun.
func (s *Slot) Failure(kind backend.Task) (at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed.kind != kind {
		return time.Time{}, nil
	}
	return s.failed.at, s.failed.err
}

// SetProgress sets the progress of the operation that is running, and reports whether it has changed.
func (s *Slot) SetProgress(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.progress == text {
		return false
	}
	s.current.progress = text
	return true
}

// Cancel cancels the operation that is running, and reports whether one is.
func (s *Slot) Cancel() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return false
	}
	s.current.cancel()
	return true
}

// Wait waits until the operation that is running has ended.
func (s *Slot) Wait(ctx context.Context) error {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current == nil {
		return nil
	}
	select {
	case <-current.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
