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

// StopAll powers off every machine of a state directory, of which no manager may be
// running, and returns when they are off. The guests have grace for it. A directory that
// does not exist has no machines. An engine that is not there has none that run.
func StopAll(ctx context.Context, stateDir string, grace time.Duration) error {
	return forAll(stateDir, false, func(d *Driver, id backend.Identity) error { return d.stopNow(ctx, id, grace) })
}

// DeleteAll is like StopAll, but deletes the machines, for which their engine must be there.
func DeleteAll(ctx context.Context, stateDir string, grace time.Duration) error {
	return forAll(stateDir, true, func(d *Driver, id backend.Identity) error {
		m, err := d.machine(id)
		if err != nil {
			return err
		}
		return m.remove(ctx, backend.DeleteOptions{Grace: grace})
	})
}

// forAll does something with all machines that are remembered in a state directory, at the
// same time.
func forAll(stateDir string, needed bool, do func(*Driver, backend.Identity) error) error {
	engines, err := remembered(stateDir)
	if err != nil {
		return err
	}
	var errs []error
	for host, uids := range engines {
		d, err := Open(Options{StateDir: stateDir, Host: host, Log: logr.Discard()})
		if err != nil {
			if needed || !errors.Is(err, backend.ErrMissing) {
				errs = append(errs, fmt.Errorf("reach %d machines; remove %s to give them up: %w", len(uids), stateDir, err))
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

// stopNow is Stop, but returns when the machine is off.
func (d *Driver) stopNow(ctx context.Context, id backend.Identity, grace time.Duration) error {
	m, box, err := d.find(ctx, id)
	if errors.Is(err, backend.ErrNotFound) || err == nil && !isOn(box) {
		return nil
	}
	if err != nil {
		return err
	}
	m.change(func(of *memo) { of.Stop = &stopNote{Run: runOf(box.State)} })
	return m.stop(ctx, grace)
}
