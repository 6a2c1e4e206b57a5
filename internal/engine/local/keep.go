package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// owner identifies the Cluster of a data directory, for a cluster whose Cluster no longer exists.
type owner struct {
	Name                 string    `json:"name"`
	ManagementClusterUID types.UID `json:"home"`
}

// readOwner returns the zero value if there is no readable owner. Such a cluster is never stopped as an orphan.
func readOwner(dir string) owner {
	var o owner
	data, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil || json.Unmarshal(data, &o) != nil {
		return owner{}
	}
	return o
}

// writeOwner writes the owner if it is known and has changed.
func writeOwner(dir string, o owner) error {
	if o.ManagementClusterUID == "" || readOwner(dir) == o {
		return nil
	}
	if err := atomicfile.WriteJSON(filepath.Join(dir, ownerFile), o, atomicfile.Durable); err != nil {
		return fmt.Errorf("write the owner of the cluster: %w", err)
	}
	return nil
}

// List implements cluster.OrphanStopper.
func (e *Engine) List(context.Context) ([]cluster.HostedCluster, error) {
	entries, err := os.ReadDir(e.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the clusters: %w", err)
	}
	var all []cluster.HostedCluster
	for _, entry := range entries {
		r := cluster.HostedCluster{UID: types.UID(entry.Name()), Dir: filepath.Join(e.opts.Dir, entry.Name())}
		o := readOwner(r.Dir)
		if r.Name, r.ManagementClusterUID = o.Name, o.ManagementClusterUID; r.ManagementClusterUID != "" && (e.runsIdly(r.UID) || e.isListening(r.UID)) {
			all = append(all, r)
		}
	}
	return all, nil
}

// Dirs returns the data directories below that of an engine of the clusters with this name. There may be one of a deleted Cluster.
func Dirs(dir, name string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the clusters: %w", err)
	}
	var all []string
	for _, entry := range entries {
		if own := filepath.Join(dir, entry.Name()); readOwner(own).Name == name {
			all = append(all, own)
		}
	}
	return all, nil
}

// runsIdly reports whether a cluster has running processes, or processes that would be restarted, and no operation in progress.
func (e *Engine) runsIdly(uid types.UID) bool {
	busy, attended := e.activity(uid)
	return !busy && (attended || e.hasProcesses(uid))
}

// isStopped reports whether a cluster has no running processes, and none that would be restarted.
func (e *Engine) isStopped(uid types.UID) bool {
	busy, attended := e.activity(uid)
	return !busy && !attended && !e.hasProcesses(uid)
}

// portUser returns the Cluster other than this one that runs an API with this URL, or listens for its clients; empty if there is none.
func (e *Engine) portUser(except types.UID, server string) string {
	entries, _ := os.ReadDir(e.opts.Dir) // only for a message
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		config, err := controlplane.AdminConfig(e.dir(uid))
		if uid != except && err == nil && config.Host == server && (e.hasProcesses(uid) || e.isListening(uid)) {
			return "the Cluster " + cmp.Or(readOwner(e.dir(uid)).Name, entry.Name())
		}
	}
	return ""
}

// activity reports whether an operation is in progress, and whether the engine supervises processes of the cluster.
func (e *Engine) activity(uid types.UID) (busy, attended bool) {
	m := e.member(uid)
	if m == nil {
		return false, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done != nil, m.cp != nil
}

// hasProcesses reports whether a process of the cluster runs or was about to start.
func (e *Engine) hasProcesses(uid types.UID) bool {
	statuses, _ := process.Peek(controlplane.Processes(e.dir(uid))) // stop reports damaged records
	return slices.ContainsFunc(statuses, func(s process.Status) bool {
		return s.State == process.Running || s.State == process.Starting
	})
}

// stopTimeout limits a stop, which then kills the remaining processes.
const stopTimeout = time.Minute

// applyStop starts to stop a cluster, unless it is being stopped already. It cancels any other operation in progress: a start may
// wait for a component that never becomes ready.
func (e *Engine) applyStop(r cluster.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.attend(r.UID, r.Name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Idle {
		err = e.markIdle(m.uid)
	} else {
		err = e.unmarkIdle(m.uid)
	}
	if err != nil {
		return err
	}
	under := m.done
	switch {
	case under == nil && m.cp == nil && !e.hasProcesses(m.uid):
		e.listenIfIdle(m, r.Idle)
		return nil
	case under != nil && m.opFor == stopKey && !m.op.Delete:
		return nil
	case under != nil:
		m.cancel()
	}
	e.begin(m, false, stopKey, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		if err := waitFor(ctx, under); err != nil {
			return err
		}
		if err := e.stop(ctx, m); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		e.listenIfIdle(m, r.Idle) // not before: until they end, the other components are clients of the API
		return nil
	})
	m.op.Description = "Stopping"
	return nil
}

// waitFor waits for the end of a canceled operation; nil means that there is none.
func waitFor(ctx context.Context, canceled <-chan struct{}) error {
	if canceled == nil {
		return nil
	}
	select {
	case <-canceled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// StopOrphan implements cluster.OrphanStopper.
func (e *Engine) StopOrphan(ctx context.Context, uid types.UID) error {
	m, op, done, err := e.beginStop(ctx, uid)
	if err != nil {
		return err
	}
	<-done // ends with ctx
	e.forget(m)
	return op.Err
}

// beginStop starts to stop a cluster, unless an operation is in progress.
func (e *Engine) beginStop(ctx context.Context, uid types.UID) (*member, *cluster.Operation, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.attend(uid, readOwner(e.dir(uid)).Name)
	if err != nil {
		return nil, nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done != nil {
		return nil, nil, nil, fmt.Errorf("%w: an operation is in progress", cluster.ErrBusy)
	}
	e.begin(m, false, "", func(own context.Context) error {
		own, cancel := context.WithCancel(own)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return e.stop(own, m)
	})
	m.op.Description = "Stopping"
	return m, m.op, m.done, nil
}

// stop stops the processes of a cluster in order, and keeps its data.
func (e *Engine) stop(ctx context.Context, m *member) error {
	m.closeIdleListener()
	if cp := m.release(); cp != nil {
		return cp.Stop(ctx)
	}
	_, err := controlplane.StopAll(ctx, e.dir(m.uid))
	if errors.Is(err, process.ErrLocked) {
		return fmt.Errorf("%w: another manager supervises the cluster: %w", cluster.ErrBusy, err)
	}
	return err
}
