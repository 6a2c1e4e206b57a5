package life

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongUpRightAfterKill kills Keelson, with or without its children, at one point of the start
// after another. The next up follows immediately, while the kernel may still be ending the killed
// processes, and must get further.
func TestLongUpRightAfterKill(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	t.Cleanup(func() { m.Run(t, "keelson", "down") })
	for _, moment := range []string{"  etcd  ", "  kube-apiserver  ", "  definitions  ", "Ctrl-C stops it."} {
		for _, all := range []bool{false, true} {
			up := m.Start(t, "keelson", "up", "--controllers=foo")
			up.Await(t, moment)
			m.kill9(t, up.PID(), all)
		}
	}
	transcript.Contains(t, m.OK(t, "keelson", "up", "--detach", "--controllers=foo"), "Keelson is ready after ")
	m.kill9(t, m.status(t).ManagerPID, true)
	transcript.Contains(t, m.OK(t, "keelson", "up", "--detach", "--controllers=foo"), "Keelson is ready after ")
	if report := m.status(t); report.ManagerPID == 0 || !report.APIReady {
		t.Errorf("it is not running: %+v", report)
	}
}

// kill9 kills the main process of the control plane, and with all also the components. It does not
// wait for their end.
func (m *machine) kill9(t *testing.T, manager int, all bool) {
	t.Helper()
	report, err := controlplane.Inspect(t.Context(), m.data())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("$ kill -9 %d  # all: %t", manager, all)
	signals.Send(t, manager, syscall.SIGKILL)
	for _, c := range report.Components {
		if all && c.State == string(process.Running) {
			signals.Try(t, c.PID, syscall.SIGKILL)
		}
	}
}

// TestUpWaitsForOneThatDies slows down the end of a killed keelson: up and down wait for it, with a
// message.
func TestUpWaitsForOneThatDies(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	t.Cleanup(func() { m.Run(t, "keelson", "down") })
	const ready = "Ctrl-C stops it."
	words := []string{"keelson", "up", "--no-controllers", "--nodes=0"}
	first := m.Start(t, words...)
	first.Await(t, ready)

	release := signals.KillSlowly(t, first.PID())
	second := m.Start(t, words...)
	second.Await(t, waiting(first))
	release()
	second.Await(t, ready)

	release = signals.KillSlowly(t, second.PID())
	down := m.Start(t, "keelson", "down")
	down.Await(t, waiting(second))
	release()
	result := down.Wait(t)
	if result.Code != 0 {
		t.Errorf("keelson down: exit code %d", result.Code)
	}
	transcript.Contains(t, result.Stdout, "Stopped in ")
}

// waiting returns the message of a command that waits for the end of another one.
func waiting(other *transcript.Running) string {
	return fmt.Sprintf("Waiting for the killed keelson (pid %d) to exit ...\n", other.PID())
}
