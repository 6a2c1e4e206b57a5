package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
)

// machine is the driver's state of one machine, with or without a container.
type machine struct {
	d  *Driver
	id backend.Identity

	task operation.Slot

	mu     sync.Mutex
	record record
	// taskErr is the error of the last attempt to delete the machine, until Delete returns it.
	taskErr error
	usage   usage
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
	err := m.task.Begin(m.d.ctx, &m.d.tasks, operation.Work{
		Kind: kind, Do: work, Changed: func() { m.d.watcher.Notify(m.id) },
		Ended: func(err error) {
			if err != nil {
				m.noteFailure(kind, err)
			}
		},
	})
	if err != nil && !errors.Is(err, backend.ErrInProgress) {
		return fmt.Errorf("machine %s: %w", m.id.UID, err)
	}
	return backend.ErrInProgress
}

// noteFailure records the error of a task. Each attempt has a name, so that it is counted once.
func (m *machine) noteFailure(kind backend.Task, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	if m.task.SetProgress(text) {
		m.d.watcher.Notify(m.id)
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
	s.Task, s.Progress = m.task.State()
	return s, s.Ended != nil || s.Task != backend.TaskNone
}

// server returns the machine in a container.
func (m *machine) server(ctr *container.InspectResponse) backend.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := describe(ctr, &m.record)
	s.Identity = m.id
	s.Task, s.Progress = m.task.State()
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
	s.Task, s.Progress = m.task.State()
	if s.IsOn() {
		s.Usage = m.usage.last
	}
}
