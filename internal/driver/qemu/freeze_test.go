package qemu

import (
	"context"
	"fmt"
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

// quiescing returns the machine of these tests.
func quiescing() backend.Machine { return booted(func(m *backend.Machine) { m.DiskBytes = 64 << 20 }) }

// runQuiescing is a manager that finds the machine and takes the snapshot first of it.
func runQuiescing(ctx context.Context, d *Driver) error {
	m, err := d.find(quiescing().Identity)
	if err != nil {
		return err
	}
	return repeat(ctx, func() error {
		if m.state().Agent != owner.AgentConnected {
			return errNotYet
		}
		id := snapshotOf(1, "first")
		if err := d.TakeSnapshot(ctx, id, backend.Source{Server: quiescing().Identity}); err != nil {
			return err
		}
		state, err := d.ObserveSnapshot(ctx, id)
		if err == nil && !state.Taken {
			return errNotYet
		}
		return err
	})
}

// A snapshot of a running machine has what the guest has written to its file systems, whether it is on the disk yet or not. The guest
// writes on afterwards, also if the manager was killed while it was frozen.
func TestLongSnapshotFreezesTheGuest(t *testing.T) {
	needGuest(t)
	at := hookSteps(t)
	w := newFixture(t)
	w.run(quiescing())
	w.shell()
	w.typed("until [ -e /run/disk/upper ]; do sleep 0.1; done; echo precious-1 >/root/file; echo written-$((40+2))")
	w.shows("written-42")
	wasFrozen := false
	at.set("guest frozen", func() {
		w.typed("echo later >/root/file; echo changed-$((40+2))")
		wasFrozen = w.driver.machines[uid].own().Record().Owed.Thaw
	})
	id := snapshotOf(1, "first")
	state := w.takes(id, quiescing())
	at.clear()
	if !state.Quiesced || !wasFrozen || w.driver.machines[uid].own().Record().Owed.Thaw {
		t.Errorf("the snapshot is %+v; recorded: %v", state, wasFrozen)
	}
	w.shows("changed-42")
	w.remove()
	fork := quiescing()
	fork.Name, fork.Snapshot, fork.Image = "fork", id.UID, &v1alpha1.Image{Snapshot: id.Name}
	w.run(fork)
	w.shell()
	w.typed("echo on-$(hostname)-$(cat /root/file)")
	w.shows("on-fork-precious-1")
	w.remove()
	w.deleteSnapshot(id)
}

// The next manager thaws a guest that a manager has frozen that was killed.
func TestLongKilledWhileAGuestIsFrozen(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	w.run(quiescing())
	w.shell()
	for i, at := range []string{"freeze recorded", "guest frozen", "guest thawed"} {
		w.do(w.driver.Close())
		t.Setenv(helperInstant, takeQuiesced)
		if _, err := w.helper(drivertest.ToRun, at, ""); err == nil {
			t.Fatalf("the manager was not killed at %q", at)
		}
		w.open()
		w.eventually("the guest answers", answers)
		w.typed(fmt.Sprintf("echo %d >/root/file; sync; echo after-%d-$((40+2))", i, i))
		w.shows(fmt.Sprintf("after-%d-42", i))
		w.eventually("it is not frozen", func(*backend.Server) bool {
			return !w.driver.machines[uid].own().Record().Owed.Thaw
		})
	}
	if state := w.takes(snapshotOf(1, "first"), quiescing()); !state.Quiesced {
		t.Errorf("the snapshot is %+v", state)
	}
	w.remove()
	w.deleteSnapshot(snapshotOf(1, "first"))
}
