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

// marker returns the environment variable of every component of a data directory, which identifies them without
// their records.
func marker(dir string) string { return "KEELSON_CONTROL_PLANE=" + dir }

// Destroy removes a control plane that no program supervises: the data directory and all its processes, even if the
// directory or its records are gone. It kills the processes, because no data is kept. Anything missing counts as removed.
// Unreadable records are logged, and their processes are killed, too. The error is a *process.LockedError if a program
// supervises it.
func Destroy(ctx context.Context, path string, log logr.Logger) error {
	dir, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := destroyProcesses(ctx, layout(dir), log); err != nil {
		return fmt.Errorf("remove the control plane in %s: %w", dir, err)
	}
	// Components may have written new files to the directory during the removal.
	if _, err := process.EndMarked(ctx, marker(dir)); err != nil {
		return fmt.Errorf("remove the control plane in %s: %w", dir, err)
	}
	// Real nodes without a readable record have just been killed.
	for index := range node.MaxNodes {
		if err := node.Clean(ctx, node.Dir(dir, index)); err != nil {
			return fmt.Errorf("remove the control plane in %s: %w", dir, err)
		}
	}
	if err := node.RemoveData(node.Dir(dir, 0)); err != nil {
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

// Remains reports whether Destroy has anything to remove: the data directory, or a process that was started in it.
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

// destroyProcesses kills the processes with records. A damaged record does not block the removal: its process is found
// by the marker.
func destroyProcesses(ctx context.Context, dir layout, log logr.Logger) error {
	if _, err := os.Stat(dir.processes()); err != nil {
		return nil // missing or unreadable; the marker finds the processes
	}
	procs, err := process.Open(dir.processes())
	if errors.Is(err, process.ErrLocked) {
		return err
	}
	if err != nil {
		return nil // as above
	}
	atOnce, cancel := context.WithCancel(ctx)
	cancel() // kill without a graceful stop
	stopErr := stopSome(atOnce, dir, procs, waitTimeout, func(name string) bool {
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

// ComponentStatus is the status of a supervised component.
type ComponentStatus struct {
	Name   string
	Status process.Status
	// Problem describes a problem of a running component, with the remedy; empty if there is none.
	Problem string
}

// Processes returns the directory with the records of the processes of a data directory, for process.Peek.
func Processes(dir string) string { return layout(dir).processes() }

// Components returns all supervised components in the order of their dependencies. A component that has ended is restarted
// automatically.
func (cp *ControlPlane) Components() []ComponentStatus {
	cp.mu.Lock()
	var names []string
	for _, name := range componentNames {
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
