package qemu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
)

// StopOptions are the options of StopAll.
type StopOptions struct {
	// Grace is the time for the guests to shut down.
	Grace time.Duration
	// SleepTimeout is the time to save the memory of the machines with Machine.SleepsAtShutdown. The others, and those whose
	// memory cannot be saved, are powered off. 0 means that all are powered off.
	SleepTimeout time.Duration
}

// StopAll powers off every machine of a state directory, or puts it to sleep, and returns when no QEMU runs. No manager of the
// directory may be running. A missing directory has no machines.
func StopAll(ctx context.Context, stateDir string, options StopOptions) error {
	statuses, err := process.Peek(filepath.Join(stateDir, "processes"))
	runs := func(s process.Status) bool { return s.State == process.Running || s.State == process.Starting }
	if err == nil && !slices.ContainsFunc(statuses, runs) {
		return nil // QEMU need not be installed for that
	}
	d, err := Open(readForStop(stateDir))
	if err != nil {
		return err
	}
	return errors.Join(d.stopAll(ctx, options), d.Close())
}

func (d *Driver) stopAll(ctx context.Context, options StopOptions) error {
	deadline := time.Now().Add(options.SleepTimeout)
	var errs []error
	var sleepers []*machine
	for _, m := range d.all() {
		switch {
		case m.savedMemory() != nil: // it stays asleep
		case m.isOff(): // the next manager needs the reason for the end of its last run
		case options.SleepTimeout > 0 && m.sleepsAtShutdown():
			sleepers = append(sleepers, m)
			err := m.begin(backend.TaskSleep, func(ctx context.Context) error {
				ctx, cancel := context.WithDeadline(ctx, deadline)
				defer cancel()
				return m.sleep(ctx, backend.SleepOptions{})
			})
			if !errors.Is(err, backend.ErrInProgress) {
				errs = append(errs, err)
			}
		default:
			errs = append(errs, m.powerOff(ctx, options.Grace))
		}
	}
	for _, m := range sleepers {
		err := m.task.Wait(ctx)
		if err == nil {
			err = m.endUnlessAsleep(ctx, options.Grace)
		}
		errs = append(errs, err)
	}
	for _, m := range d.all() {
		errs = append(errs, m.waitOff(ctx))
	}
	return errors.Join(append(errs, d.networks.syncAll(ctx))...)
}

func (m *machine) isOff() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run == ""
}

// sleepsAtShutdown reports whether the machine is on, and is to be put to sleep when its host is shut down. One that is being
// stopped is not.
func (m *machine) sleepsAtShutdown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.def.SleepsAtShutdown && m.run != "" && m.def.StopRun != m.run
}

// powerOff begins to power the machine off.
func (m *machine) powerOff(ctx context.Context, grace time.Duration) error {
	if err := m.d.Stop(ctx, m.id, grace); !errors.Is(err, backend.ErrInProgress) {
		return err
	}
	return nil
}

// endUnlessAsleep begins to end the QEMU of a machine that could not be put to sleep. It powers the machine off, and records why,
// unless the memory is saved.
func (m *machine) endUnlessAsleep(ctx context.Context, grace time.Duration) error {
	m.mu.Lock()
	isOff, isSaved := m.run == "", m.def.Asleep != nil
	_, failed := m.task.Failure(backend.TaskSleep)
	if !isOff && !isSaved {
		why := hostShutDown
		switch {
		case errors.Is(failed, context.DeadlineExceeded), errors.Is(failed, os.ErrDeadlineExceeded):
			why += ", and there was no time to save it"
		case failed != nil:
			why += ": " + failed.Error()
		}
		m.def.StopRun, m.def.Unsaved = m.run, why
		m.save()
	}
	m.mu.Unlock()
	switch {
	case isOff:
		return nil
	case isSaved:
		m.endIfAsleep()
		return nil
	}
	step("stop instead of sleep")
	return m.powerOff(ctx, grace)
}

// hostShutDown begins the reason why a machine was shut down instead of being put to sleep.
const hostShutDown = "the host was shut down"

// Unsaved is a machine that a shutdown of its host should have put to sleep, and whose memory is lost instead.
type Unsaved struct {
	Namespace, Name string
	// Reason is why its memory could not be saved.
	Reason string
}

// machinesDir is the directory of the folders of machines in a state directory.
func machinesDir(stateDir string) string { return filepath.Join(stateDir, "machines") }

// FindUnsaved returns the machines of a state directory that were shut down at that time or later instead of being put to sleep. It
// only reads: the machines may have been stopped by another program. A missing directory has no machines.
func FindUnsaved(stateDir string, since time.Time) ([]Unsaved, error) {
	dir := machinesDir(stateDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Unsaved
	errs := []error{err}
	for _, entry := range entries {
		if checkUID(types.UID(entry.Name())) != nil {
			continue // it is being removed
		}
		def, err := readDefinition(filepath.Join(dir, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if reason := def.unsavedSince(since); reason != "" {
			all = append(all, Unsaved{def.Namespace, def.Name, reason})
		}
	}
	slices.SortFunc(all, func(a, b Unsaved) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all, errors.Join(errs...)
}

// unsavedSince returns why the memory of the machine was lost at a shutdown of the host at that time or later; empty if it was not.
func (def *definition) unsavedSince(since time.Time) string {
	ended := def.Ended
	switch {
	case def.Unsaved != "": // its end is not recorded yet
		return def.Unsaved
	case ended == nil || ended.Cause != backend.CauseMemoryLost || ended.At.Before(since) || !strings.HasPrefix(ended.Message, hostShutDown):
		return ""
	}
	return ended.Message
}

// stopFile has the options of the last manager: QEMU has to save the memory of a machine as the next manager will load it.
const stopFile = "stop.json"

// saveForStop writes the options for StopAll to the state directory. A failure is only logged: a full disk must not keep the
// manager from its machines.
func (o *Options) saveForStop() {
	raw, err := json.Marshal(o)
	path := filepath.Join(o.StateDir, stopFile)
	if before, readErr := os.ReadFile(path); readErr == nil && string(before) == string(raw) {
		return
	}
	if err == nil {
		err = atomicfile.Write(path, raw, atomicfile.Durable)
	}
	if err != nil {
		o.Log.Error(err, "Could not write the options for a shutdown of the host")
	}
}

// readForStop returns the options for StopAll. If they cannot be read, all machines can be powered off
// nevertheless.
func readForStop(stateDir string) Options {
	var options Options
	raw, err := os.ReadFile(filepath.Join(stateDir, stopFile))
	if err != nil || json.Unmarshal(raw, &options) != nil {
		options = Options{}
	}
	options.StateDir, options.InstantStart, options.Log, options.stopsOnly = stateDir, InstantNever, logr.Discard(), true
	return options
}
