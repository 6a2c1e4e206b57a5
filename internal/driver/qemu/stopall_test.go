package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

// sleeper returns a machine that is put to sleep when its host is shut down.
func (w *fixture) sleeper() backend.Machine {
	machine := w.firmware()
	machine.SleepsAtShutdown = true
	return machine
}

// shutDown stops the machines as at a shutdown of the host, and opens the driver as after it.
func (w *fixture) shutDown(options StopOptions) *backend.Server {
	w.Helper()
	w.do(w.driver.Close())
	w.do(StopAll(w.Context(), w.options.StateDir, options))
	w.noProcess()
	w.open()
	return w.server()
}

func TestShutdownPutsMachinesToSleep(t *testing.T) {
	w := newFixture(t)
	machine := w.sleeper()
	w.run(machine)
	failed := &testGuest{w, w.firmware()}
	failed.machine.UID, failed.machine.Name = uuid.NewUUID(), "failed"
	w.create(failed.machine)
	m, err := w.driver.find(failed.machine.Identity)
	w.do(err)
	m.recordFailure(backend.TaskStart, errors.New("no disk"))
	began := time.Now()
	if server := w.shutDown(StopOptions{SleepTimeout: time.Minute}); server.State != backend.StateAsleep || server.Ended != nil && server.Ended.Cause != backend.CauseRequested {
		t.Errorf("after the shutdown the machine is %+v", server)
	}
	if ended := failed.server().Ended; ended == nil || ended.Cause != backend.CauseStartFailed {
		t.Errorf("a machine that was off before ended with %+v", ended)
	}
	w.delete(failed.machine)
	if w.starts(machine); !w.wasWoken() {
		t.Error("it was not woken")
	}
	// The next shutdown has no time for it, and the one of a user who deletes everything needs none.
	if server := w.shutDown(StopOptions{}); server.State != backend.StateStopped || server.Ended.Cause != backend.CauseRequested {
		t.Errorf("it is %+v, ended %+v", server, server.Ended)
	}
	w.expectUnsaved(began)
	w.remove()
	w.do(StopAll(t.Context(), filepath.Join(w.options.StateDir, "nothing"), StopOptions{}))
}

// expectUnsaved checks which machines were shut down since a time instead of being put to sleep.
func (w *fixture) expectUnsaved(since time.Time, want ...Unsaved) {
	w.Helper()
	got, err := FindUnsaved(w.options.StateDir, since)
	w.do(err)
	if !slices.Equal(got, want) {
		w.Errorf("the machines that were shut down instead of put to sleep are %+v, want %+v", got, want)
	}
}

// Without a state directory there are no machines, and the rest of a machine that is being removed is none.
func TestFindUnsaved(t *testing.T) {
	w := &fixture{T: t, options: Options{StateDir: filepath.Join(t.TempDir(), "machines"), InstantStart: InstantNever}}
	w.expectUnsaved(time.Time{})
	now := time.Now()
	for id, def := range map[string]definition{
		"c": {Unsaved: "the host was shut down: why"},
		"b": {Ended: &backend.Ended{At: now, Cause: backend.CauseMemoryLost, Message: "the host was shut down: no room"}},
		"a": {Ended: &backend.Ended{At: now.Add(-time.Second), Cause: backend.CauseMemoryLost, Message: "the host was shut down: before"}},
		"d": {Ended: &backend.Ended{At: now, Cause: backend.CauseMemoryLost, Message: "its file is damaged"}},
		"e": {Ended: &backend.Ended{At: now, Cause: backend.CauseRequested}},
		"f": {},
	} {
		def.UID = types.UID(strings.Repeat(id, 8) + string(uid[8:]))
		def.Namespace, def.Name = "default", id
		dir := filepath.Join(machinesDir(w.options.StateDir), string(def.UID))
		w.do(os.MkdirAll(dir, 0o700))
		w.do(def.write(dir))
	}
	w.do(os.Mkdir(filepath.Join(machinesDir(w.options.StateDir), trashPrefix+string(uid)), 0o700))
	w.expectUnsaved(now, Unsaved{"default", "b", "the host was shut down: no room"}, Unsaved{"default", "c", "the host was shut down: why"})
}

// A machine that cannot be put to sleep is powered off, and says why.
func TestShutdownWithoutSleep(t *testing.T) {
	for name, test := range map[string]struct {
		limit   int64
		timeout time.Duration
		says    string
	}{
		"no time": {0, time.Nanosecond, "the host was shut down, and there was no time to save it"},
		"no room": {1 << 10, time.Minute, "1024 bytes that virtualMachines.stateMax allows"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.options.MaxSavedBytes = test.limit
			w.open()
			machine := w.sleeper()
			w.run(machine)
			began := time.Now()
			server := w.shutDown(StopOptions{SleepTimeout: test.timeout})
			if server.State != backend.StateStopped || server.Ended == nil || server.Ended.Cause != backend.CauseMemoryLost || !strings.Contains(server.Ended.Message, test.says) {
				t.Errorf("after the shutdown the machine is %+v, ended %+v", server, server.Ended)
			}
			w.expectUnsaved(began, Unsaved{machine.Namespace, machine.Name, server.Ended.Message})
			w.expectUnsaved(time.Now())
			if w.hasMemory() {
				t.Error("a part of its memory is left over")
			}
			w.run(machine)
			if server := w.stops(); server.Ended.Cause != backend.CauseRequested {
				t.Errorf("a stop that was requested later counts as %+v", server.Ended)
			}
			w.remove()
		})
	}
}

// The limit applies to all machines together, and what is free again can be used.
func TestSavedMemoryIsLimited(t *testing.T) {
	before := sleepRetryInterval
	sleepRetryInterval = 0
	t.Cleanup(func() { sleepRetryInterval = before })
	w := newFixture(t)
	machine := w.firmware()
	run := w.run(machine).Run
	other := newMachine(w.driver, definition{Machine: backend.Machine{Identity: backend.Identity{UID: "other"}}, Asleep: &savedMemory{Memory: savedmemory.Memory{Size: 1 << 30}}})
	w.driver.mu.Lock()
	w.driver.machines["other"] = other
	w.driver.mu.Unlock()
	w.driver.options.MaxSavedBytes = 1<<30 + 1<<10
	w.do(w.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
	w.eventually("the attempt has failed", func(s *backend.Server) bool {
		return s.Task == backend.TaskNone && s.State == backend.StateRunning && s.Run == run
	})
	if _, failed := w.driver.machines[uid].task.Failure(backend.TaskSleep); failed == nil || !strings.Contains(failed.Error(), fmt.Sprint(w.driver.options.MaxSavedBytes)) {
		t.Errorf("the attempt failed with %v", failed)
	}
	if w.hasMemory() {
		t.Error("a part of its memory is left over")
	}
	w.driver.options.MaxSavedBytes = 2 << 30
	w.sleeps()
	if got, want := w.driver.machines[uid].savedBytes.Load(), w.server().SavedBytes; got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	w.starts(machine)
	if got := w.driver.machines[uid].savedBytes.Load(); got != 0 {
		t.Errorf("%d bytes are counted of a machine that is awake", got)
	}
	w.driver.forget(other)
	w.remove()
}

// A machine that is being stopped does not sleep.
func TestShutdownDuringAStop(t *testing.T) {
	w := newFixture(t)
	w.run(w.sleeper())
	m := w.driver.machines[uid]
	m.mu.Lock()
	m.def.StopRun = m.run
	m.save()
	m.mu.Unlock()
	if server := w.shutDown(StopOptions{SleepTimeout: time.Minute}); server.State != backend.StateStopped || server.Ended.Cause != backend.CauseRequested {
		t.Errorf("it is %+v, ended %+v", server, server.Ended)
	}
	w.remove()
}

// Without the options of the last manager, machines are stopped nevertheless.
func TestShutdownWithUnreadableOptions(t *testing.T) {
	w := newFixture(t)
	w.run(w.sleeper())
	w.do(os.WriteFile(filepath.Join(w.options.StateDir, stopFile), []byte("{"), 0o600))
	if server := w.shutDown(StopOptions{SleepTimeout: time.Minute}); server.State != backend.StateAsleep && server.State != backend.StateStopped {
		t.Errorf("after the shutdown the machine is %+v", server)
	}
	w.remove()
}

// A shutdown is killed at each step, and another one follows: the machine is asleep.
func TestLongShutdownKilledAtEveryStep(t *testing.T) {
	stop := func(w *fixture, step string) ([]string, error) {
		w.Helper()
		w.do(w.driver.Close())
		return drivertest.Manager(w, drivertest.ToSleep, step, helperState+"="+w.options.StateDir, helperStop+"=yes")
	}
	w := newFixture(t)
	w.run(w.sleeper())
	steps, err := stop(w, "")
	w.do(err)
	w.open()
	w.remove()
	if len(steps) < 5 {
		t.Fatalf("the steps are %q", steps)
	}
	for _, at := range steps {
		t.Run(at, func(t *testing.T) {
			w := newFixture(t)
			machine := w.sleeper()
			w.run(machine)
			if _, err := stop(w, at); err == nil {
				t.Fatalf("the shutdown was not killed at %q", at)
			}
			w.do(StopAll(t.Context(), w.options.StateDir, StopOptions{SleepTimeout: time.Minute}))
			w.noProcess()
			w.open()
			w.reach(machine, drivertest.ToRun)
			if !w.wasWoken() || w.hasMemory() {
				t.Errorf("it was woken: %v; there is memory: %v", w.wasWoken(), w.hasMemory())
			}
			w.remove()
		})
	}
}
