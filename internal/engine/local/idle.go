package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// idleFile marks a cluster that is stopped because it is idle, for the next manager. It exists from before the stop until the start.
const idleFile = "idle"

// markIdle writes the mark. Afterwards every manager goes on with the stop, and listens.
func (e *Engine) markIdle(uid types.UID) error {
	path := filepath.Join(e.dir(uid), idleFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := atomicfile.WriteJSON(path, struct{}{}, atomicfile.Durable); err != nil {
		return fmt.Errorf("mark the cluster as idle: %w", err)
	}
	return nil
}

func (e *Engine) unmarkIdle(uid types.UID) error {
	if err := os.Remove(filepath.Join(e.dir(uid), idleFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mark of the idle cluster: %w", err)
	}
	return nil
}

// isIdle reports whether a cluster is stopped, or to be stopped, because it is idle, and no client has connected since.
func (e *Engine) isIdle(uid types.UID) bool {
	if _, err := os.Stat(filepath.Join(e.dir(uid), idleFile)); err != nil {
		return false
	}
	m := e.member(uid)
	if m == nil {
		return true
	}
	listener := m.currentIdleListener()
	return listener == nil || !listener.wasContacted()
}

// isListening reports whether the engine listens for clients of a cluster, and no operation is in progress.
func (e *Engine) isListening(uid types.UID) bool {
	m := e.member(uid)
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done == nil && m.idleListener != nil && m.idleListener.isListening()
}

// currentIdleListener returns the listener of a cluster; nil if there is none.
func (m *member) currentIdleListener() *idleListener {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.idleListener
}

// closeIdleListener stops listening for clients, and closes the connections of those that wait.
func (m *member) closeIdleListener() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeIdleListenerLocked()
}

func (m *member) closeIdleListenerLocked() {
	if m.idleListener != nil {
		m.idleListener.close()
		m.idleListener = nil
	}
}

// listenIfIdle makes the engine listen for clients of a cluster that has no processes, or stop listening. The caller holds m.mu. If
// another program has the port, the cluster is idle no longer: a start chooses another port or reports the problem.
func (e *Engine) listenIfIdle(m *member, isIdle bool) {
	if m.idleListener != nil && m.idleListener.isListening() == isIdle {
		return
	}
	m.closeIdleListenerLocked()
	if !isIdle {
		return
	}
	opened, err := e.openIdleListener(m)
	if err != nil {
		e.startInstead(m, err)
		return
	}
	m.idleListener = opened
	e.changed(m.name)
}

// openIdleListener listens at the address of the API of a cluster, which must be free.
func (e *Engine) openIdleListener(m *member) (*idleListener, error) {
	config, err := controlplane.AdminConfig(e.dir(m.uid))
	if err != nil {
		return nil, err
	}
	return newIdleListener(strings.TrimPrefix(config.Host, "https://"), func() { e.changed(m.name) })
}

// startInstead starts a cluster for whose clients the engine cannot listen.
func (e *Engine) startInstead(m *member, cause error) {
	e.opts.Log.Error(cause, "Cannot listen at the address of an idle cluster, which is started", "Cluster", m.name)
	if err := e.unmarkIdle(m.uid); err != nil {
		e.opts.Log.Error(err, "Failed to start an idle cluster", "Cluster", m.name)
	}
	e.changed(m.name)
}
