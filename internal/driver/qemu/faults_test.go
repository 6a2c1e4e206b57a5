package qemu

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// quickly shortens the interval of monitor checks for a test.
func quickly(t *testing.T) {
	t.Helper()
	before := owner.CheckInterval
	owner.CheckInterval = 50 * time.Millisecond
	t.Cleanup(func() { owner.CheckInterval = before })
}

func (w *fixture) firmware() backend.Machine {
	w.Helper()
	machine := firmware(uid)
	machine.Image.Path = emptyImage(w.T)
	return machine
}

// A QEMU that does not answer is unknown until it answers again, also to a new manager. It is killed when the grace period of a stop is
// over, and the machine starts again.
func TestLongSuspendedProcess(t *testing.T) {
	quickly(t)
	w := newFixture(t)
	machine := w.firmware()
	run := w.run(machine).Run
	pid := w.pid(t, uid)
	signals.Send(t, pid, syscall.SIGSTOP)
	w.eventually("it is unknown", is(backend.StateUnknown))
	if got := w.pid(t, uid); got != pid {
		t.Errorf("the process is %d instead of %d", got, pid)
	}
	signals.Send(t, pid, syscall.SIGCONT)
	if server := w.eventually("it runs", is(backend.StateRunning)); server.Run != run {
		t.Errorf("not the same run: %+v", server)
	}

	signals.Send(t, pid, syscall.SIGSTOP)
	w.eventually("it is unknown", is(backend.StateUnknown))
	w.do(w.driver.Stop(t.Context(), machine.Identity, time.Second))
	server := w.eventually("it is off", is(backend.StateStopped))
	if server.Ended == nil || server.Ended.Cause != backend.CauseRequested || server.Ended.Run != run {
		t.Errorf("ended with %+v", server.Ended)
	}
	w.starts(machine)

	signals.Send(t, w.pid(t, uid), syscall.SIGSTOP)
	w.open() // a new manager finds it unresponsive
	w.eventually("it is unknown", is(backend.StateUnknown))
	w.remove()
}

// A QEMU that answers again within the grace period lets its guest power off.
func TestLongStopOfProcessThatAnswersAgain(t *testing.T) {
	needGuest(t)
	quickly(t)
	at := hookSteps(t)
	var poweredOff atomic.Bool
	at.set("guest ended", func() { poweredOff.Store(true) })
	w := newFixture(t)
	machine := booted()
	w.run(machine)
	w.eventually("the guest answers", answers)
	w.shows("root@") // earlier, it may ignore the button
	pid := w.pid(t, uid)
	signals.Send(t, pid, syscall.SIGSTOP)
	w.eventually("it is unknown", is(backend.StateUnknown))
	w.do(w.driver.Stop(t.Context(), machine.Identity, harness.WaitTimeout))
	w.eventually("it is being stopped", func(s *backend.Server) bool { return s.Task == backend.TaskStop && s.Progress != "" })
	signals.Send(t, pid, syscall.SIGCONT)
	w.eventually("it is off", is(backend.StateStopped))
	if !poweredOff.Load() {
		t.Error("the guest did not power off")
	}
	w.remove()
}

// The folder of a machine, or all of them, are removed while it runs: it does not run on beside the machine that is created again, or when
// it is deleted.
func TestFolderRemovedWhileItRuns(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	loses := func() {
		t.Helper()
		w.do(w.driver.Close())
		w.do(os.RemoveAll(w.options.StateDir))
		w.open()
		if server := w.server(); server != nil {
			t.Errorf("the new manager observes %+v", server)
		}
	}
	w.run(machine)
	w.do(os.RemoveAll(filepath.Join(w.driver.machinesDir(), string(uid))))
	w.do(w.driver.Stop(t.Context(), machine.Identity, 0))
	w.eventually("it is deleted", func(s *backend.Server) bool { return s == nil })
	w.run(machine)

	before := w.pid(t, uid)
	loses()
	w.run(machine)
	if got := w.pid(t, uid); got == before {
		t.Errorf("process %d still exists", got)
	}

	loses()
	w.remove()
}

// QEMU runs without a readable record: a deletion still ends it.
func TestUnreadableProcessRecord(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	w.run(machine)
	w.do(w.driver.Close())
	record := filepath.Join(w.options.StateDir, "processes", string(uid))
	w.do(os.WriteFile(filepath.Join(record, "record.json"), []byte("{"), 0o600))
	w.open()
	w.remove()
	if _, err := os.Lstat(record); !os.IsNotExist(err) {
		t.Errorf("the record still exists: %v", err)
	}
}

// The power button of the human monitor is pressed while no manager runs: the next one learns that
// the guest shut down by itself.
func TestLongGuestThatEndsWithoutAManager(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	w.run(booted())
	run := w.eventually("the guest answers", answers).Run
	w.shows("root@") // earlier, it may ignore the button
	w.do(w.driver.Close())
	conn, err := qmp.DialUnix(t.Context(), filepath.Join(w.driver.machinesDir(), string(uid), qemu.HumanSocket))
	w.do(err)
	_, err = conn.Write([]byte("system_powerdown\n"))
	w.do(err)
	defer func() { _ = conn.Close() }()
	w.open()
	server := w.eventually("it is off", is(backend.StateStopped))
	if server.Ended == nil || server.Ended.Cause != backend.CauseGuestShutdown || server.Ended.Run != run {
		t.Errorf("ended with %+v", server.Ended)
	}
	w.remove()
}

func TestFailedStart(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	w.create(machine)
	w.do(os.WriteFile(filepath.Join(w.driver.machinesDir(), string(uid), diskFile), []byte("no disk"), 0o600))
	w.do(w.driver.Start(t.Context(), machine))
	server := w.eventually("it has failed", func(s *backend.Server) bool { return s.Ended != nil && s.Task == backend.TaskNone })
	if server.Ended.Cause != backend.CauseStartFailed || server.Ended.Message == "" {
		t.Errorf("ended with %+v", server.Ended)
	}
	w.remove()
}
