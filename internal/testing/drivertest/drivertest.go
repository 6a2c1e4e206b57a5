// Package drivertest is the contract of virtual machine drivers as tests. Every driver, real or
// fake, must pass Run.
package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// callLimit is the timeout of a call, on a machine that is busy: it must not block a worker.
const callLimit = 30 * time.Second

// Backend is a backend to test a driver on.
type Backend struct {
	// Open opens the driver as a new manager does. The previous driver is closed.
	Open func(t *testing.T) backend.Driver
	// Machine returns a small machine with that UID, which runs until it is stopped.
	Machine func(uid types.UID) backend.Machine
	// Kill ends the run of a server without the driver's knowledge.
	Kill func(t *testing.T, uid types.UID)
	// Leftovers returns what is left in the backend: processes, containers, files.
	Leftovers func(t *testing.T) []string
	// Apart means that the test does not reach the addresses of guests: the backend has a network of its own.
	Apart bool
	// Ephemeral means that servers end when the driver is closed.
	Ephemeral bool
}

// fixture is a driver under test.
type fixture struct {
	*testing.T
	backend Backend
	driver  backend.Driver
	// cannotDial means that the driver has said that it does not dial.
	cannotDial bool

	mu       sync.Mutex
	notified map[types.UID]int
}

func newFixture(t *testing.T, b Backend) *fixture {
	f := &fixture{T: t, backend: b, notified: map[types.UID]int{}}
	f.open()
	return f
}

// newMachine returns a machine with a new UID: a backend may find leftovers of other tests and
// processes by UID.
func (f *fixture) newMachine() backend.Machine { return f.backend.Machine(uuid.NewUUID()) }

// open opens the driver, and closes the previous one.
func (f *fixture) open() {
	f.Helper()
	f.driver = f.backend.Open(f.T)
	f.driver.Watch(func(id backend.Identity) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.notified[id.UID]++
	})
}

// reopen opens the driver unless that ends all servers.
func (f *fixture) reopen() {
	f.Helper()
	if !f.backend.Ephemeral {
		f.open()
	}
}

// call makes a call of the driver, which must be quick.
func (f *fixture) call(what string, call func(context.Context) error) error {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), callLimit)
	defer cancel()
	began := time.Now()
	err := call(ctx)
	if took := time.Since(began); took >= callLimit {
		f.Errorf("%s took %v", what, took)
	}
	if err != nil && !errors.Is(err, backend.ErrInProgress) {
		return err
	}
	return nil
}

// must makes a call that succeeds immediately or in the background.
func (f *fixture) must(what string, call func(context.Context) error) {
	f.Helper()
	if err := f.call(what, call); err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

// observe returns the server; nil if it does not exist.
func (f *fixture) observe(machine backend.Machine) *backend.Server {
	f.Helper()
	var server backend.Server
	err := f.call("Observe", func(ctx context.Context) (err error) {
		server, err = f.driver.Observe(ctx, machine.Identity)
		return err
	})
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		f.Fatalf("Observe: %v", err)
	}
	return &server
}

// until waits until the server is in a state without a running task.
func (f *fixture) until(machine backend.Machine, state backend.State) *backend.Server {
	f.Helper()
	var server *backend.Server
	harness.Eventually(f, "it is "+string(state), func() bool {
		server = f.observe(machine)
		if server != nil && server.Ended != nil && server.Task == backend.TaskNone && state != server.State &&
			(server.Ended.Cause == backend.CauseCreateFailed || server.Ended.Cause == backend.CauseStartFailed) {
			f.Fatalf("it failed: %s", server.Ended.Message)
		}
		return server != nil && server.State == state && server.Task == backend.TaskNone
	})
	return server
}

func (f *fixture) create(machine backend.Machine) {
	f.Helper()
	f.must("Create", func(ctx context.Context) error { return f.driver.Create(ctx, machine) })
	f.until(machine, backend.StateStopped)
}

func (f *fixture) start(machine backend.Machine) *backend.Server {
	f.Helper()
	f.must("Start", func(ctx context.Context) error { return f.driver.Start(ctx, machine) })
	return f.until(machine, backend.StateRunning)
}

func (f *fixture) stop(machine backend.Machine, grace time.Duration) *backend.Server {
	f.Helper()
	f.must("Stop", func(ctx context.Context) error { return f.driver.Stop(ctx, machine.Identity, grace) })
	return f.until(machine, backend.StateStopped)
}

// remove deletes a server and waits until it no longer exists.
func (f *fixture) remove(machine backend.Machine) {
	f.Helper()
	harness.Eventually(f, "it is deleted", func() bool {
		ctx, cancel := context.WithTimeout(f.Context(), callLimit)
		defer cancel()
		err := f.driver.Delete(ctx, machine.Identity, backend.DeleteOptions{})
		if err != nil && !errors.Is(err, backend.ErrInProgress) {
			f.Fatalf("Delete: %v", err)
		}
		return err == nil
	})
	if server := f.observe(machine); server != nil {
		f.Errorf("after Delete returned nil the server is %+v", server)
	}
}

// expectClean fails the test if the backend has leftovers.
func (f *fixture) expectClean() {
	f.Helper()
	if left := f.backend.Leftovers(f.T); len(left) > 0 {
		f.Errorf("left behind: %v", left)
	}
}

// Run runs the contract tests.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	for _, test := range []struct {
		name string
		run  func(*fixture)
	}{
		{"it lives", testLife},
		{"missing machine", testNothing},
		{"it sleeps", testSleep},
		{"it dies, and a new manager finds it", testDeath},
		{"a new manager is on the same host", testHost},
		{"it is deleted before it runs", testDelete},
		{"machines are independent", testTwo},
		{"disks come and go", testDisks},
		{"it is reached", testReached},
		{"a closed driver does nothing", testClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, newBackend(t))
			test.run(f)
			f.expectClean()
		})
	}
}

// testLife creates, starts, stops and deletes a server, each of it twice.
func testLife(f *fixture) {
	machine := f.newMachine()
	machine.Seed = &backend.Seed{UserData: "#cloud-config\n"}
	f.create(machine)
	f.create(machine)
	created := f.observe(machine)
	if created.Run != "" || created.ID == "" || created.Ended != nil || created.Hash != machine.Hash {
		f.Errorf("a server that was created: %+v", created)
	}
	running := f.start(machine)
	if running.Run == "" || running.StartedAt.IsZero() || running.Ended != nil {
		f.Errorf("a server that runs: %+v", running)
	}
	if again := f.start(machine); again.Run != running.Run {
		f.Errorf("the second start began another run: %s and %s", running.Run, again.Run)
	}
	f.must("Create", func(ctx context.Context) error { return f.driver.Create(ctx, machine) })
	if after := f.until(machine, backend.StateRunning); after.Run != running.Run {
		f.Errorf("Create ended the run")
	}
	stopped := f.stop(machine, 0)
	if stopped.Ended == nil || stopped.Ended.Cause != backend.CauseRequested || stopped.Run != running.Run || !stopped.StartedAt.IsZero() {
		f.Errorf("a server that was stopped: %+v, ended %+v", stopped, stopped.Ended)
	}
	f.stop(machine, 0)
	kept := machine
	kept.Seed, kept.KeepsSeed = nil, true
	second := f.start(kept)
	if second.Run == running.Run || second.Ended != nil {
		f.Errorf("the second run: %+v", second)
	}
	f.must("Reconfigure", func(ctx context.Context) error { return f.driver.Reconfigure(ctx, machine) })
	if pending := f.observe(machine).Pending; slices.Contains(pending, "cloudInit") {
		f.Errorf("a start that keeps the seed changed it: %v", pending)
	}
	if f.driver.Capabilities().Pause {
		f.pauseTwice(machine, second.Run)
	}
	f.stop(machine, 0)
	harness.Eventually(f, "Watch reports the change", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.notified[machine.UID] > 0
	})
	f.remove(machine)
	f.remove(machine)
}

// pauseTwice pauses and resumes a server in a run, and pauses it again.
func (f *fixture) pauseTwice(machine backend.Machine, run string) {
	f.Helper()
	f.must("Pause", func(ctx context.Context) error { return f.driver.Pause(ctx, machine.Identity) })
	if paused := f.until(machine, backend.StatePaused); paused.Run != run || !paused.IsOn() {
		f.Errorf("a paused server: %+v", paused)
	}
	f.must("Resume", func(ctx context.Context) error { return f.driver.Resume(ctx, machine.Identity) })
	if resumed := f.until(machine, backend.StateRunning); resumed.Run != run {
		f.Errorf("a resumed server: %+v", resumed)
	}
	f.must("Pause", func(ctx context.Context) error { return f.driver.Pause(ctx, machine.Identity) })
}

func testNothing(f *fixture) {
	machine := f.newMachine()
	if server := f.observe(machine); server != nil {
		f.Errorf("there is %+v", server)
	}
	f.remove(machine)
	for what, call := range map[string]func(context.Context) error{
		"Start":       func(ctx context.Context) error { return f.driver.Start(ctx, machine) },
		"Stop":        func(ctx context.Context) error { return f.driver.Stop(ctx, machine.Identity, 0) },
		"Reconfigure": func(ctx context.Context) error { return f.driver.Reconfigure(ctx, machine) },
	} {
		if err := f.call(what, call); !errors.Is(err, backend.ErrNotFound) {
			f.Errorf("%s of nothing: %v", what, err)
		}
	}
}

// testDeath kills a server twice. The second time, a new manager finds it before and afterwards, unless servers end with their manager.
func testDeath(f *fixture) {
	machine := f.newMachine()
	f.create(machine)
	first := f.start(machine).Run
	f.backend.Kill(f.T, machine.UID)
	dead := f.until(machine, backend.StateStopped)
	if dead.Ended == nil || dead.Ended.Cause == backend.CauseRequested || dead.Ended.Run != first {
		f.Errorf("a server that was killed: %+v", dead.Ended)
	}
	run := f.start(machine).Run
	if run == first {
		f.Errorf("restarted in the same run %s", run)
	}
	changed := machine
	changed.Hash = "changed"
	f.must("Reconfigure", func(ctx context.Context) error { return f.driver.Reconfigure(ctx, changed) })
	f.reopen()
	// List comes before any Observe: the driver knows only what the backend has.
	servers, err := f.driver.List(f.Context())
	if err != nil || !slices.ContainsFunc(servers, func(s backend.Server) bool { return s.Identity == machine.Identity }) {
		f.Errorf("it lists %+v, %v", servers, err)
	}
	if found := f.until(machine, backend.StateRunning); found.Run != run || found.Hash != changed.Hash {
		f.Errorf("a new manager observes %+v, want run %s", found, run)
	}
	f.backend.Kill(f.T, machine.UID)
	f.until(machine, backend.StateStopped)
	f.reopen()
	servers, err = f.driver.List(f.Context())
	if err != nil || !slices.ContainsFunc(servers, func(s backend.Server) bool { return s.Identity == machine.Identity && !s.IsOn() }) {
		f.Errorf("after its death it lists %+v, %v", servers, err)
	}
	if found := f.until(machine, backend.StateStopped); found.Ended == nil || found.Ended.Run != run || found.Ended.Cause == backend.CauseRequested {
		f.Errorf("a new manager observes a dead server as %+v", found.Ended)
	}
	if stopped := f.stop(machine, 0); stopped.Ended.Cause != backend.CauseRequested {
		f.Errorf("a dead server that was stopped: %+v", stopped.Ended)
	}
	f.reopen()
	if found := f.until(machine, backend.StateStopped); found.Ended == nil || found.Ended.Cause != backend.CauseRequested {
		f.Errorf("a new manager observes a stopped server as %+v", found.Ended)
	}
	f.remove(machine)
}

func testHost(f *fixture) {
	first := f.driver.Host()
	if first.ID == "" || first.Name == "" {
		f.Errorf("the host is %+v", first)
	}
	f.open()
	if again := f.driver.Host(); again != first {
		f.Errorf("a new manager is on %+v, want %+v", again, first)
	}
}

func testDelete(f *fixture) {
	machine := f.newMachine()
	f.must("Create", func(ctx context.Context) error { return f.driver.Create(ctx, machine) })
	f.remove(machine)
	f.expectClean()
	f.create(machine)
	f.must("Start", func(ctx context.Context) error { return f.driver.Start(ctx, machine) })
	f.remove(machine)
}

// testTwo deletes one of two servers while it runs, and the other one while it is being stopped.
func testTwo(f *fixture) {
	one, other := f.newMachine(), f.newMachine()
	other.Namespace, other.Name = "elsewhere", one.Name
	f.create(one)
	f.create(other)
	first, second := f.start(one), f.start(other)
	if first.ID == second.ID {
		f.Errorf("both have the ID %s", first.ID)
	}
	f.remove(one)
	if left := f.until(other, backend.StateRunning); left.Run != second.Run {
		f.Errorf("after the deletion of one, the other is %+v", left)
	}
	f.must("Stop", func(ctx context.Context) error { return f.driver.Stop(ctx, other.Identity, time.Hour) })
	f.remove(other)
}

func testClosed(f *fixture) {
	machine := f.newMachine()
	if err := f.driver.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
	err := f.call("Create", func(ctx context.Context) error { return f.driver.Create(ctx, machine) })
	if !errors.Is(err, backend.ErrUnavailable) {
		f.Errorf("Create of a closed driver: %v", err)
	}
}
