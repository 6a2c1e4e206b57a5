package rke

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/process"
)

// observeRemoval returns the progress of a removal. Nothing exists after rke has removed the cluster, if rke was never run for
// it, or if no configuration is left that names the nodes.
func (e *Engine) observeRemoval(seen *cluster.Observation, r cluster.Request, last *run, status process.Status) {
	here := e.place(r.UID)
	if last != nil && last.Command == commandRemove {
		seen.Operation = newOperation(*last, status, "")
		if how := outcomeOf(*last, status); how.ok {
			seen.Exists, seen.Notes = false, how.notes
			return
		}
	}
	switch {
	case last != nil && status.State == process.Running:
		seen.Exists, seen.Waiting, seen.Poll = true, "rke "+last.Command+", which is at: "+progress(status.LogTail), poll
		return
	case process.IsMarked(here.marker()): // its records were removed by hand
		seen.Exists, seen.Waiting, seen.Poll = true, "a run of rke to end", poll
		return
	case last == nil && r.Applied == "" && here.applied() == nil:
		seen.Exists = false
		return
	}
	path, err := e.configPath(r)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil && here.keptConfig() == nil {
		seen.Exists = false
		seen.Notes = []string{fmt.Sprintf("rke remove was not run, because neither %s nor a copy of it exists: the hosts of the cluster were not cleaned", r.Spec.ConfigPath)}
		return
	}
	seen.Exists, seen.Waiting = true, "rke remove"
}

// Delete implements cluster.Engine.
func (e *Engine) Delete(_ context.Context, r cluster.Request) error {
	leave, err := e.enter()
	if err != nil {
		return err
	}
	defer leave()
	m, err := e.attend(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, status := m.place.last()
	if last != nil && last.Command == commandRemove && (status.State == process.Running || outcomeOf(*last, status).ok) {
		return nil
	}
	p := m.running()
	if p != nil || process.IsMarked(m.place.marker()) {
		// rke up may still be provisioning the cluster.
		e.wg.Go(func() { e.makeWay(m, p) })
		return fmt.Errorf("%w: rke up is being stopped", cluster.ErrBusy)
	}
	path, err := e.configPath(r)
	if err != nil {
		return err
	}
	next := run{Command: commandRemove, Config: path}
	next.PutBack = last != nil && last.Command == commandRemove && last.PutBack // for an attempt before this
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		kept := m.place.keptConfig()
		if kept == nil {
			return nil // nothing tells what to remove, see observeRemoval
		}
		if err := e.putBack(path, kept); err != nil {
			return err
		}
		next.PutBack = true
	}
	return e.start(m, next, nil)
}

// makeWay stops a run that blocks a removal.
func (e *Engine) makeWay(m *member, p *process.Process) {
	var err error
	if p != nil {
		err = e.end(m, p)
	} else {
		_, err = process.EndMarked(e.ctx, m.place.marker())
	}
	if err != nil && e.ctx.Err() == nil {
		e.opts.Log.Error(err, "Could not stop rke", "Cluster", m.name)
	}
	e.changed(m.name)
}

// putBack restores a deleted configuration: rke derives the path of its state file from it.
func (e *Engine) putBack(path string, content []byte) error {
	if err := e.opts.ConfigDirs.WriteFile(path, content); err != nil {
		return fmt.Errorf("restore the configuration for rke remove: %w", err)
	}
	return nil
}

// Abandon implements cluster.Engine. It deletes the records of a cluster that was removed.
func (e *Engine) Abandon(_ context.Context, r cluster.Request) error {
	e.mu.Lock()
	m := e.clusters[r.UID]
	delete(e.clusters, r.UID)
	e.mu.Unlock()
	here := e.place(r.UID)
	last, status := here.last()
	var seen cluster.Observation
	e.observeRemoval(&seen, r, last, status)
	if m != nil {
		if err := m.procs.Close(); err != nil {
			return err
		}
	}
	if seen.Exists || !r.Deleting {
		return nil
	}
	if last != nil && last.PutBack {
		if err := os.Remove(last.Config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the restored configuration: %w", err)
		}
	}
	return os.RemoveAll(string(here))
}
