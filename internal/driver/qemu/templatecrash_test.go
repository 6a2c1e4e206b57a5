package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

// helperInstant is what a manager with templates does: it makes a template, or starts the machine of the test from one and waits
// until its guest answers.
const helperInstant = "KEELSON_TEST_INSTANT"

const (
	makeTemplate  = "make"
	startInstance = "start"
	startFork     = "fork"   // a machine that is made of the snapshot first, which has memory
	startShared   = "shared" // the same, whose memory is shared
	takeQuiesced  = "freeze" // a snapshot of the machine, which runs
)

// runInstantHelper is a manager with templates.
func runInstantHelper(d *Driver, what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drivertest.HelperLimit)
	defer cancel()
	if what == makeTemplate {
		from := newLaunch(booted(), d.kvm, d.plugs)
		from.Programs, from.Seed = programDirs(d.binary), seedFile
		l, err := d.templateLaunch(from)
		if err != nil {
			return err
		}
		build, key, err := d.templates.key(l)
		if err != nil {
			return err
		}
		return errors.Join(d.templates.make(ctx, l, &template{Key: key, Build: build}), d.Close())
	}
	if what == takeQuiesced {
		return errors.Join(runQuiescing(ctx, d), d.Close())
	}
	machine := booted()
	if what == startFork || what == startShared {
		machine = instantFork()
	}
	if what == startShared {
		d.loaded.use(d.findSnapshot(machine.Snapshot).definition().Memory.SHA256) // as another fork would
	}
	if err := drivertest.Reach(ctx, d, machine, drivertest.ToRun); err != nil {
		return err
	}
	err := repeat(ctx, func() error {
		server, err := d.Observe(ctx, booted().Identity)
		if err == nil && server.Agent != backend.AgentConnected {
			return errNotYet
		}
		return err
	})
	return errors.Join(err, d.Close())
}

// instantFork returns a machine that is made of the snapshot first.
func instantFork() backend.Machine {
	return booted(func(m *backend.Machine) {
		m.Name, m.Snapshot, m.Image, m.DiskBytes = "fork", snapshotOf(1, "first").UID, &v1alpha1.Image{Snapshot: "first"}, 64<<20
	})
}

// A manager killed while a machine that is made of a snapshot with memory goes on as itself is followed by one that completes that.
func TestLongKilledWhileAForkGoesOn(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	source := booted(func(m *backend.Machine) { m.DiskBytes = 64 << 20 })
	w.run(source)
	w.eventually("the guest answers", answers)
	w.takesMemory(snapshotOf(1, "first"), source)
	w.remove()
	for _, killed := range []struct{ what, at string }{
		{startFork, "fork prepared"}, {startFork, "created"}, {startFork, "fork disconnected"}, {startFork, "memory used"},
		{startFork, "continue done"}, {startFork, "guest renamed"}, {startFork, "fork complete"},
		{startShared, "shared memory begun"}, {startShared, "shared memory loaded"}, {startShared, "process started"},
		{startShared, "fork disconnected"}, {startShared, "memory used"},
	} {
		at := killed.at
		t.Run(killed.what+" "+at, func(t *testing.T) {
			w.do(w.driver.Close())
			t.Setenv(helperInstant, killed.what)
			if _, err := w.helper(drivertest.ToRun, at, ""); err == nil {
				t.Fatalf("the manager was not killed at %q", at)
			}
			w.open()
			if w.server().State == backend.StatePaused { // the controller resumes it
				err := w.driver.Resume(t.Context(), instantFork().Identity)
				if !errors.Is(err, backend.ErrUnavailable) { // its QEMU is about to end
					w.do(err)
				}
			}
			w.reach(instantFork(), drivertest.ToRun)
			w.eventually("the guest answers", answers)
			if !w.wasInstant(instantFork()) {
				t.Error("it has booted")
			}
			if w.driver.machines[uid].own().Record().Owed.Name || w.hasMemory() {
				t.Errorf("the guest does not know who it is, or its memory is there: %v", w.hasMemory())
			}
			w.reconnect()
			w.typed("echo $(hostname)-$((40+2))")
			w.shows("fork-42")
			w.remove()
		})
	}
	w.deleteSnapshot(snapshotOf(1, "first"))
}

// A manager killed while it makes a template leaves no process behind for the next one, and either a complete template or none.
func TestLongKilledWhileATemplateIsMade(t *testing.T) {
	for at, want := range map[string]int{"template prepared": 0, "template started": 0, "template booted": 0, "template ended": 0, "template made": 1} {
		t.Run(at, func(t *testing.T) {
			w := instantly(t)
			w.do(w.driver.Close())
			t.Setenv(helperInstant, makeTemplate)
			if _, err := w.helper(drivertest.ToRun, at, ""); err == nil {
				t.Fatalf("the manager was not killed at %q", at)
			}
			w.open()
			if process.IsMarked(templateMark + filepath.Join(w.driver.templatesDir(), makingDir)) {
				t.Error("the process of the template is still there")
			}
			if _, err := w.driver.processes.Find(templateProcess); !errors.Is(err, process.ErrNotFound) {
				t.Errorf("the record of the process is still there: %v", err)
			}
			entries, err := os.ReadDir(w.driver.templatesDir())
			w.do(err)
			if len(entries) != want || len(w.driver.templates.all) != want {
				t.Errorf("templates are %v, want %d", entries, want)
			}
		})
	}
}

// A manager killed while it starts a machine from a template is followed by one that starts it, once.
func TestLongKilledWhileAMachineStartsFromATemplate(t *testing.T) {
	for _, at := range []string{"prepared", "process started", "template loaded", "continue done", "guest started"} {
		t.Run(at, func(t *testing.T) {
			w := instantly(t)
			machine := booted()
			w.create(machine)
			w.haveTemplate(machine)
			w.do(w.driver.Close())
			t.Setenv(helperInstant, startInstance)
			if _, err := w.helper(drivertest.ToRun, at, ""); err == nil {
				t.Fatalf("the manager was not killed at %q", at)
			}
			w.open()
			w.reach(machine, drivertest.ToRun)
			w.eventually("the guest answers", answers)
			if !w.wasInstant(machine) { // it also fails if there are two
				t.Error("it was not started from the template")
			}
			if w.driver.machines[uid].own().Record().Owed.Start {
				t.Error("the guest waits")
			}
			w.remove()
		})
	}
}
