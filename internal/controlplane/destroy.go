package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// marker is in the environment of every component of a data directory, so that they are found without their records.
func marker(dir string) string { return "KEELSON_CONTROL_PLANE=" + dir }

// Destroy removes a control plane that no program supervises: every process of the data directory, also when the directory
// or the records in it are gone, and the directory itself. It kills the processes, because no data is to be kept.
// What is missing counts as removed. Records that cannot be read are logged; their processes are ended, too. The error
// is a *process.LockedError when a program looks after it.
func Destroy(ctx context.Context, path string, log logr.Logger) error {
	dir, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := destroyProcesses(ctx, layout(dir), log); err != nil {
		return fmt.Errorf("remove the control plane in %s: %w", dir, err)
	}
	// A component writes up to its end, so the directory may have got new files while it was removed.
	if _, err := process.EndMarked(ctx, marker(dir)); err != nil {
		return fmt.Errorf("remove the control plane in %s: %w", dir, err)
	}
	// A real node without a readable record has just been killed.
	if err := node.Clean(ctx, layout(dir).node()); err != nil {
		return fmt.Errorf("remove the control plane in %s: %w", dir, err)
	}
	if err := removeAll(ctx, dir); err != nil {
		return fmt.Errorf("remove the control plane in %s: %w", dir, err)
	}
	return nil
}

// removeAll removes a directory. The shim of a process that was killed without its record writes the exit status there and
// ends: a file that appears during the removal is removed, too.
func removeAll(ctx context.Context, dir string) error {
	for {
		err := os.RemoveAll(dir)
		if !errors.Is(err, syscall.ENOTEMPTY) || !pause(ctx, 10*time.Millisecond) {
			return err
		}
	}
}

// Remains reports whether anything is left of a control plane that Destroy would have to remove: its data directory, or a
// process that was started in it.
func Remains(path string) bool {
	dir, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return process.IsMarked(marker(dir))
}

// destroyProcesses kills what the records tell of. A damaged one does not block the removal of the rest: its process has
// the marker of the data directory.
func destroyProcesses(ctx context.Context, dir layout, log logr.Logger) error {
	if _, err := os.Stat(dir.processes()); err != nil {
		return nil // gone, or not to be read: then the marker must do
	}
	procs, err := process.Open(dir.processes())
	if errors.Is(err, process.ErrLocked) {
		return err
	}
	if err != nil {
		return nil // as above: a damaged directory does not keep us from removing it
	}
	atOnce, cancel := context.WithCancel(ctx)
	cancel() // does not wait for a polite end
	stopErr := stopSome(atOnce, dir, procs, patience, func(name string) bool {
		_, err := procs.Find(name)
		var damage *process.DamagedError
		if !errors.As(err, &damage) {
			return true
		}
		log.Info("Cannot read the record of a component; ending all processes of the data directory instead",
			"component", name, "record", damage.Folder, "reason", damage.Err.Error())
		return false
	})
	return errors.Join(stopErr, procs.Close())
}

// NodeDir returns the directory of the real node of a data directory.
func NodeDir(dir string) string { return layout(dir).node() }

// ComponentStatus is what is known about one component of a control plane that is looked after.
type ComponentStatus struct {
	Name   string
	Status process.Status
	// Problem says what is wrong with a component that runs, and what to do; empty if nothing is.
	Problem string
}

// Processes returns the directory with the records of the processes of a data directory, for process.Peek.
func Processes(dir string) string { return layout(dir).processes() }

// Components returns all supervised components in the order of their dependencies. A component that has ended is restarted
// automatically.
func (cp *ControlPlane) Components() []ComponentStatus {
	cp.mu.Lock()
	var names []string
	for _, name := range []string{nameEtcd, nameAPIServer, nameControllerManager, nameScheduler, nameKwok, nameNode} {
		if cp.launched[name] != nil {
			names = append(names, name)
		}
	}
	problem := map[string]string{nameEtcd: describeAlarm(cp.alarm)}
	cp.mu.Unlock()
	var all []ComponentStatus
	for _, name := range names {
		status := process.Status{ID: name, State: process.Starting}
		if p, err := cp.procs.Find(name); err == nil {
			status = p.Status()
		}
		all = append(all, ComponentStatus{Name: name, Status: status, Problem: problem[name]})
	}
	return all
}
