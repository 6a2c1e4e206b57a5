package qemu

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
)

// StopAll powers off every machine of a state directory and returns when they are off. No manager
// of the directory may be running. grace is the time for the guests to shut down. A missing
// directory has no machines.
func StopAll(ctx context.Context, stateDir string, grace time.Duration) error {
	statuses, err := process.Peek(filepath.Join(stateDir, "processes"))
	runs := func(s process.Status) bool { return s.State == process.Running || s.State == process.Starting }
	if err == nil && !slices.ContainsFunc(statuses, runs) {
		return nil // QEMU need not be installed for that
	}
	d, err := Open(Options{StateDir: stateDir, Log: logr.Discard(), stopsOnly: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range d.all() {
		if m.savedMemory() != nil {
			continue // it stays asleep
		}
		if err := d.Stop(ctx, m.id, grace); err != nil && !errors.Is(err, backend.ErrInProgress) {
			errs = append(errs, err)
		}
	}
	for _, m := range d.all() {
		errs = append(errs, m.waitOff(ctx))
	}
	errs = append(errs, d.networks.syncAll(ctx))
	return errors.Join(append(errs, d.Close())...)
}
