package docker

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// machine is the driver's state of one machine, with or without a container.
type machine struct {
	d  *Driver
	id backend.Identity

	mu     sync.Mutex
	record record
	task   *task
	// taskErr is the error of the last attempt to delete the machine, until Delete returns it.
	taskErr error
	usage   usage
}

// task is an operation in the background.
type task struct {
	kind     backend.Task
	progress string
	cancel   context.CancelFunc
	done     chan struct{}
}

// begin starts a task. It returns ErrInProgress if the task runs, now or already.
func (m *machine) begin(kind backend.Task, work func(context.Context) error) error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.d.closed {
		return fmt.Errorf("driver docker is closed: %w", backend.ErrUnavailable)
	}
	switch m.d.machines[m.id.UID] {
	case m:
	case nil: // it was forgotten in the meantime
		m.d.machines[m.id.UID] = m
	default:
		return backend.ErrInProgress
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.task != nil && m.task.kind == kind {
		return backend.ErrInProgress
	}
	previous := m.task
	if previous != nil {
		if kind != backend.TaskDelete {
			return fmt.Errorf("machine %s: the task %s is still running", m.id.UID, previous.kind)
		}
		previous.cancel()
	}
	ctx, cancel := context.WithCancel(m.d.ctx)
	t := &task{kind: kind, cancel: cancel, done: make(chan struct{})}
	m.task = t
	m.d.tasks.Go(func() {
		defer cancel()
		if previous != nil {
			<-previous.done
		}
		m.finish(t, work(ctx))
	})
	return backend.ErrInProgress
}

func (m *machine) finish(t *task, err error) {
	m.mu.Lock()
	if m.task == t {
		m.task = nil
		if err != nil && m.d.ctx.Err() == nil {
			m.noteFailure(t.kind, err)
		}
	}
	close(t.done)
	m.mu.Unlock()
	m.d.notifyChange(m.id)
}

// noteFailure records the error of a task; m.mu is held. Each attempt has a name, so that it is
// counted once.
func (m *machine) noteFailure(kind backend.Task, err error) {
	now := time.Now()
	ended := &backend.Ended{Run: "attempt-" + strconv.FormatInt(now.UnixNano(), 36), Message: err.Error(), At: now}
	switch kind {
	case backend.TaskCreate:
		ended.Cause = backend.CauseCreateFailed
	case backend.TaskStart:
		ended.Cause = backend.CauseStartFailed
	default:
		m.taskErr = err
		return
	}
	m.record.Failed = ended
	m.save()
}

// change updates the record.
func (m *machine) change(change func(*record)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.record)
	m.save()
}

// progress sets the progress of the current task.
func (m *machine) progress(text string) {
	m.mu.Lock()
	changed := m.task != nil && m.task.progress != text
	if changed {
		m.task.progress = text
	}
	m.mu.Unlock()
	if changed {
		m.d.notifyChange(m.id)
	}
}

// attempt returns a machine that has no container: the current task, or the result of the last
// attempt to create it; false if there is neither.
func (m *machine) attempt() (backend.Server, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := backend.Server{Identity: m.id, ID: containerName(m.id.UID), State: backend.StateAbsent}
	if m.record.Failed != nil && m.record.Failed.Cause == backend.CauseCreateFailed {
		s.Ended = m.record.Failed
	}
	if m.task != nil {
		s.Task, s.Progress = m.task.kind, m.task.progress
	}
	return s, s.Ended != nil || s.Task != backend.TaskNone
}

// server returns the machine in a container.
func (m *machine) server(ctr *container.InspectResponse) backend.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := describe(ctr, &m.record)
	s.Identity = m.id
	if m.task != nil {
		s.Task, s.Progress = m.task.kind, m.task.progress
	}
	if s.IsOn() && m.usage.run == s.Run {
		s.Usage = m.usage.last
	}
	return s
}

// complete adds the driver's state to a machine of a list. A list does not identify the run.
func (m *machine) complete(s *backend.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Hash = m.record.Machine.Hash
	if m.task != nil {
		s.Task, s.Progress = m.task.kind, m.task.progress
	}
	if s.IsOn() {
		s.Usage = m.usage.last
	}
}
