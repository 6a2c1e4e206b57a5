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

// machine is what is known of one machine here; its container may be there or not.
type machine struct {
	d  *Driver
	id backend.Identity

	mu   sync.Mutex
	memo memo
	task *task
	// taskErr is why the last attempt to delete the machine failed, until it is told.
	taskErr error
	usage   usage
}

// task is what goes on in the background.
type task struct {
	kind     backend.Task
	progress string
	cancel   context.CancelFunc
	done     chan struct{}
}

// begin starts a task. The error is ErrInProgress if it goes on, or goes on already.
func (m *machine) begin(kind backend.Task, work func(context.Context) error) error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.d.closed {
		return fmt.Errorf("driver docker is closed: %w", backend.ErrUnavailable)
	}
	switch m.d.machines[m.id.UID] {
	case m:
	case nil: // it was forgotten a moment ago
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
			return fmt.Errorf("machine %s: the task to %s it goes on", m.id.UID, previous.kind)
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

// finish ends a task.
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
	m.d.tell(m.id)
}

// noteFailure remembers why a task failed; m.mu is held. An attempt has a name, so that
// it is counted once.
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
	m.memo.Failed = ended
	m.save()
}

// change changes what is remembered.
func (m *machine) change(change func(*memo)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.memo)
	m.save()
}

// progress says how far the present task is.
func (m *machine) progress(text string) {
	m.mu.Lock()
	changed := m.task != nil && m.task.progress != text
	if changed {
		m.task.progress = text
	}
	m.mu.Unlock()
	if changed {
		m.d.tell(m.id)
	}
}

// attempt returns the machine while it has no container: what goes on, or what the last
// attempt to create it came to. False if there is nothing to tell.
func (m *machine) attempt() (backend.Server, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := backend.Server{Identity: m.id, ID: containerName(m.id.UID), State: backend.StateAbsent}
	if m.memo.Failed != nil && m.memo.Failed.Cause == backend.CauseCreateFailed {
		s.Ended = m.memo.Failed
	}
	if m.task != nil {
		s.Task, s.Progress = m.task.kind, m.task.progress
	}
	return s, s.Ended != nil || s.Task != backend.TaskNone
}

// server returns the machine that is in a container.
func (m *machine) server(box *container.InspectResponse) backend.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := describe(box, &m.memo)
	s.Identity = m.id
	if m.task != nil {
		s.Task, s.Progress = m.task.kind, m.task.progress
	}
	if s.IsOn() && m.usage.run == s.Run {
		s.Usage = m.usage.last
	}
	return s
}

// complete fills in what is known here of a machine in a list, which does not say which
// run it is.
func (m *machine) complete(s *backend.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Hash = m.memo.Machine.Hash
	if m.task != nil {
		s.Task, s.Progress = m.task.kind, m.task.progress
	}
	if s.IsOn() {
		s.Usage = m.usage.last
	}
}
