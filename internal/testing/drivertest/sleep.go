package drivertest

import (
	"context"
	"errors"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func (f *fixture) sleep(machine backend.Machine) *backend.Server {
	f.Helper()
	f.must("Sleep", func(ctx context.Context) error { return f.driver.Sleep(ctx, machine.Identity, backend.SleepOptions{}) })
	return f.until(machine, backend.StateAsleep)
}

func testSleep(f *fixture) {
	machine := f.newMachine()
	sleep := func(ctx context.Context) error { return f.driver.Sleep(ctx, machine.Identity, backend.SleepOptions{}) }
	if !f.driver.Capabilities().Sleep {
		if err := f.call("Sleep", sleep); !errors.Is(err, backend.ErrInvalid) {
			f.Errorf("Sleep of a driver that cannot: %v", err)
		}
		return
	}
	if err := f.call("Sleep", sleep); !errors.Is(err, backend.ErrNotFound) {
		f.Errorf("Sleep of nothing: %v", err)
	}
	f.create(machine)
	f.must("Sleep of a server that is off", sleep)
	f.until(machine, backend.StateStopped)
	run := f.start(machine).Run

	asleep := f.sleep(machine)
	if asleep.IsOn() || asleep.Run != run || asleep.SavedBytes == 0 || !asleep.StartedAt.IsZero() || asleep.Usage != nil || len(asleep.Endpoints) > 0 {
		f.Errorf("a server that is asleep: %+v", asleep)
	}
	f.sleep(machine) // again
	f.reopen()
	if found := f.until(machine, backend.StateAsleep); found.SavedBytes != asleep.SavedBytes {
		f.Errorf("a new manager observes %+v", found)
	}
	changed := machine
	changed.Hash = "changed"
	f.must("Reconfigure", func(ctx context.Context) error { return f.driver.Reconfigure(ctx, changed) })
	f.until(machine, backend.StateAsleep)
	awake := f.start(machine)
	if awake.Run == run || awake.Ended != nil || awake.StartedAt.IsZero() || awake.SavedBytes != 0 {
		f.Errorf("a server that has woken: %+v", awake)
	}

	if f.driver.Capabilities().Pause {
		f.must("Pause", func(ctx context.Context) error { return f.driver.Pause(ctx, machine.Identity) })
		f.until(machine, backend.StatePaused)
	}
	f.sleep(machine)
	stopped := f.stop(machine, 0)
	if stopped.Ended == nil || stopped.Ended.Cause != backend.CauseRequested || stopped.SavedBytes != 0 {
		f.Errorf("a server that was stopped while it was asleep: %+v, ended %+v", stopped, stopped.Ended)
	}
	f.start(machine)
	f.sleep(machine)
	f.remove(machine)
	f.expectClean()
	// Deleted while it falls asleep.
	f.create(machine)
	f.start(machine)
	f.must("Sleep", sleep)
	f.remove(machine)
}
