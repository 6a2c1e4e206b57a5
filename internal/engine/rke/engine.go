// Package rke is the engine that runs the program rke, as the original controller did, with a configuration file for the
// cluster.
//
// A run of rke is a process that outlives the manager; the next manager adopts it. The engine keeps its records in a directory
// named after the UID of the Cluster: a copy of the applied configuration, the log, and the result of the last run. The files
// in the directory of the configuration belong to rke and its user.
package rke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/secrecy"
	"github.com/keelson-dev/keelson/internal/process"
)

// Options configure an Engine.
type Options struct {
	// Dir is the parent of the record directories. The engine creates it with mode 0700 for the first cluster.
	Dir string
	// Binary is the program rke: a path, or a name in PATH.
	Binary string
	// ConfigDirs are the directories that may contain the files of spec.configPath, and the files that rke writes next to them.
	// If empty, the engine accepts no clusters.
	ConfigDirs confine.Dirs
	// Timeout limits a run; rke itself has no limit.
	Timeout time.Duration
	// Log is the logger. The zero value discards all messages.
	Log logr.Logger
}

const (
	// stopTimeout is the time between SIGTERM and SIGKILL for a run that exceeds its timeout or blocks a removal.
	stopTimeout = 5 * time.Second
	// poll is the interval for the progress of a run.
	poll = 2 * time.Second
	// recheck is the interval for reading the configuration, which has no events.
	recheck = 5 * time.Second
)

// Engine implements cluster.Engine.
type Engine struct {
	opts    Options
	changed func(string)

	ctx    context.Context // of everything that goes on; its end leaves runs going on
	cancel context.CancelFunc
	wg     sync.WaitGroup

	starting sync.Mutex // so that two clusters do not both find their directory free
	mu       sync.Mutex
	clusters map[types.UID]*member
}

// member is a cluster that the engine supervises.
type member struct {
	place place
	name  string
	procs *process.Dir

	mu sync.Mutex // held while something is begun
}

// New returns an engine. It starts nothing.
func New(opts Options) *Engine {
	e := &Engine{opts: opts, changed: func(string) {}, clusters: map[types.UID]*member{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Notify implements cluster.Engine.
func (e *Engine) Notify(changed func(string)) { e.changed = changed }

func (e *Engine) place(uid types.UID) place { return place(filepath.Join(e.opts.Dir, string(uid))) }

// enter starts a call that may start a run. Close waits for the end of the call. The error is ErrStopping after Close.
func (e *Engine) enter() (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		return nil, cluster.ErrStopping
	}
	e.wg.Add(1)
	return e.wg.Done, nil
}

// attend opens the records of a cluster and supervises its current run, which an earlier manager may have started.
func (e *Engine) attend(r cluster.Request) (*member, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.clusters[r.UID]; m != nil {
		return m, nil
	}
	m := &member{place: e.place(r.UID), name: r.Name}
	procs, err := process.Open(m.place.processes())
	if errors.Is(err, process.ErrLocked) {
		return nil, fmt.Errorf("%w: another manager supervises the cluster: %w", cluster.ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	m.procs = procs
	if err := secrecy.MakeKey(m.place.key()); err != nil {
		return nil, errors.Join(err, procs.Close())
	}
	e.clusters[r.UID] = m
	if p := m.running(); p != nil {
		e.wg.Go(func() { e.watch(m, p) })
	}
	return m, nil
}

func (e *Engine) isAttended(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clusters[uid] != nil
}

// running returns the current run, or nil. It uses the same check as Observe.
func (m *member) running() *process.Process {
	last, status := m.place.last()
	if last == nil || status.State != process.Running {
		return nil
	}
	p, err := m.procs.Find(last.Command)
	if err != nil {
		return nil
	}
	return p
}

// awaitEnd waits until the record of the last run of a command is closed, which happens shortly after its exit status is
// written.
func (m *member) awaitEnd(command string) {
	p, err := m.procs.Find(command)
	if err != nil {
		return
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
	}
}

// Apply implements cluster.Engine.
func (e *Engine) Apply(_ context.Context, r cluster.Request) error {
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
	if m.running() != nil {
		return nil
	}
	wanted, err := e.newDesiredState(r)
	if err != nil {
		return err
	}
	if was := m.place.applied(); was != nil && was.Hash == wanted.hash {
		return nil
	}
	if err := checkState(r, wanted.path); err != nil {
		return err
	}
	if err := m.place.keepApplied(); err != nil {
		return err
	}
	return e.start(m, run{Command: commandUp, Config: wanted.path, Hash: wanted.hash, Masked: wanted.masked}, wanted.content)
}

// findBinary returns the path of rke. The error message has the remedy.
func (e *Engine) findBinary() (string, error) {
	path, err := exec.LookPath(e.opts.Binary)
	if err == nil {
		return filepath.Abs(path)
	}
	var failed *exec.Error
	if errors.As(err, &failed) {
		err = failed.Err // without the name, which the message has already
	}
	return "", fmt.Errorf("%w: the program %s was not found (%w): install RKE 1 on the host of the manager, or set --rke-binary",
		cluster.ErrUnavailable, e.opts.Binary, err)
}

// start starts a run, unless another run uses the same directory, where rke keeps its files.
func (e *Engine) start(m *member, next run, config []byte) error {
	binary, err := e.findBinary()
	if err != nil {
		return err
	}
	e.starting.Lock()
	defer e.starting.Unlock()
	if other := e.busy(m.place, filepath.Dir(next.Config)); other != "" {
		return fmt.Errorf("%w: rke is running for Cluster %s in the same directory, %s", cluster.ErrBusy, other, filepath.Dir(next.Config))
	}
	if err := e.discardDamaged(m, next.Command); err != nil {
		return err
	}
	next.Cluster, next.Began = m.name, time.Now()
	if err := m.place.writeRun(next, config); err != nil {
		return err
	}
	args := []string{next.Command}
	if next.Command == commandRemove {
		args = append(args, "--force") // otherwise rke asks for confirmation
	}
	m.awaitEnd(next.Command)
	p, err := m.procs.Start(process.Spec{
		ID: next.Command, Path: binary, Args: append(args, "--config", next.Config),
		Env: append(os.Environ(), m.place.marker()), WorkDir: filepath.Dir(next.Config),
	})
	if err != nil {
		return fmt.Errorf("start rke %s: %w", next.Command, err)
	}
	e.opts.Log.Info("Started rke", "Cluster", m.name, "command", next.Command, "pid", p.PID())
	e.wg.Go(func() { e.watch(m, p) })
	return nil
}

// discardDamaged discards the unreadable record of an earlier run if none of its processes is running.
func (e *Engine) discardDamaged(m *member, command string) error {
	_, err := m.procs.Find(command)
	var damage *process.DamagedError
	if !errors.As(err, &damage) {
		return nil // Start reports any other error
	}
	if process.IsMarked(m.place.marker()) {
		return fmt.Errorf("%w: rke is running, and its record %s cannot be read: %w", cluster.ErrBusy, damage.Folder, damage.Err)
	}
	e.opts.Log.Info("Discarding the record of an earlier run of rke, because it cannot be read",
		"Cluster", m.name, "command", command, "record", damage.Folder, "reason", damage.Err.Error())
	return m.procs.Discard(command)
}

// busy returns the name of another cluster for which rke is running in a directory, or "".
func (e *Engine) busy(own place, dir string) string {
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return "" // there is nothing yet
	}
	for _, entry := range entries {
		other := place(filepath.Join(e.opts.Dir, entry.Name()))
		if other == own {
			continue
		}
		if last, status := other.last(); last != nil && filepath.Dir(last.Config) == dir && status.State == process.Running {
			return last.Cluster
		}
	}
	return ""
}

// watch waits for the end of a run, and stops it after its timeout.
func (e *Engine) watch(m *member, p *process.Process) {
	timer := time.NewTimer(max(time.Until(p.Status().StartedAt.Add(e.opts.Timeout)), time.Millisecond))
	defer timer.Stop()
	select {
	case <-e.ctx.Done():
		return
	case <-p.Done():
	case <-timer.C:
		e.opts.Log.Info("Stopping rke, which exceeded its timeout", "Cluster", m.name, "pid", p.PID(), "limit", e.opts.Timeout)
		m.place.noteTimeout(e.opts.Timeout)
		if err := e.end(m, p); err != nil && e.ctx.Err() == nil {
			e.opts.Log.Error(err, "Could not stop rke", "Cluster", m.name)
		}
	}
	e.changed(m.name)
}

// end stops a run and all processes that it has started.
func (e *Engine) end(m *member, p *process.Process) error {
	err := p.Stop(e.ctx, process.StopOptions{TermTimeout: stopTimeout})
	_, strayErr := process.EndMarked(e.ctx, m.place.marker())
	return errors.Join(err, strayErr)
}

// Close implements cluster.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.cancel()
	e.mu.Unlock()
	e.wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for uid, m := range e.clusters {
		errs = append(errs, m.procs.Close())
		delete(e.clusters, uid)
	}
	return errors.Join(errs...)
}
