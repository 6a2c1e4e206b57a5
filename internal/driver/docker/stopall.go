package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// StopAll powers off every machine of a state directory and returns when they are off. No manager
// of the directory may be running. grace is the time for the guests to shut down. A missing
// directory has no machines, and a missing engine runs none.
func StopAll(ctx context.Context, stateDir string, grace time.Duration) error {
	return forAll(stateDir, false, func(d *Driver, id backend.Identity) error { return d.stopNow(ctx, id, grace) })
}

// DeleteAll is like StopAll but deletes the machines; their engine must be available.
func DeleteAll(ctx context.Context, stateDir string, grace time.Duration) error {
	return forAll(stateDir, true, func(d *Driver, id backend.Identity) error {
		m, err := d.machine(id)
		if err != nil {
			return err
		}
		return m.remove(ctx, backend.DeleteOptions{Grace: grace})
	})
}

// forAll calls do concurrently for all machines with a record in a state directory.
func forAll(stateDir string, needed bool, do func(*Driver, backend.Identity) error) error {
	engines, err := recorded(stateDir)
	if err != nil {
		return err
	}
	var errs []error
	for host, uids := range engines {
		d, err := Open(Options{StateDir: stateDir, Host: host, Log: logr.Discard()})
		if err != nil {
			if needed || !errors.Is(err, backend.ErrMissing) {
				errs = append(errs, fmt.Errorf("reach the engine of %d machines; to abandon them, remove %s: %w", len(uids), stateDir, err))
			}
			continue
		}
		results := make([]error, len(uids))
		var all sync.WaitGroup
		for i, uid := range uids {
			all.Go(func() { results[i] = do(d, backend.Identity{UID: uid}) })
		}
		all.Wait()
		errs = append(errs, errors.Join(results...), d.Close())
	}
	return errors.Join(errs...)
}

// stopNow is like Stop but returns when the machine is off.
func (d *Driver) stopNow(ctx context.Context, id backend.Identity, grace time.Duration) error {
	m, ctr, err := d.find(ctx, id)
	if errors.Is(err, backend.ErrNotFound) || err == nil && !isOn(ctr) {
		return nil
	}
	if err != nil {
		return err
	}
	m.change(func(rec *record) { rec.Stop = &stopRequest{Run: runOf(ctr.State)} })
	return m.stop(ctx, grace)
}
