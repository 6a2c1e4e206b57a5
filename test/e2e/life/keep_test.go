package life

import (
	"maps"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestKeepRunning stops Keelson as systemd restarts a unit: its children keep running, and the next
// up adopts them.
func TestKeepRunning(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	t.Cleanup(func() { m.Run(t, "keelson", "down") })
	words := []string{"keelson", "up", "--keep-running", "--no-controllers", "--nodes=0"}
	up := m.Start(t, words...)
	up.Await(t, "Ctrl-C stops it.")
	before := m.components(t)
	up.Signal(t, syscall.SIGTERM)
	up.Await(t, "The API, machines and clusters keep running without controllers. `keelson down` stops them.")
	if end := up.Wait(t); end.Code != 0 {
		t.Errorf("exit code %d after a stop:\n%s", end.Code, end.Stdout)
	}
	if report := m.status(t); report.ManagerPID != 0 || !report.APIReady {
		t.Errorf("after the stop: %+v", report)
	}
	up = m.Start(t, words...)
	up.Await(t, "Ctrl-C stops it.")
	if after := m.components(t); !maps.Equal(before, after) {
		t.Errorf("processes were %v and are %v", before, after)
	}
	// Two at once wait for each other.
	downs := []*transcript.Running{m.Start(t, "keelson", "down"), m.Start(t, "keelson", "down")}
	output := ""
	for _, down := range downs {
		end := down.Wait(t)
		if end.Code != 0 {
			t.Errorf("exit code %d: %s", end.Code, end.Stderr)
		}
		output += end.Stdout
	}
	transcript.Contains(t, output, "Stopped in ", "Nothing was running in ")
	m.nothingIsLeft(t)
}

// TestDownOfAManager stops the children of a manager on a host; there are none.
func TestDownOfAManager(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	transcript.Contains(t, m.OK(t, "keelson", "down", "--state-dir", m.home), "Stopped all machines and clusters of "+m.home)
	transcript.Contains(t, m.Fails(t, 1, "keelson", "down", "--state-dir", m.path("nowhere")), "the state directory of the manager: ")
	transcript.Contains(t, m.Fails(t, 2, "keelson", "down", "--state-dir", m.home, "--delete-data"), "cannot be combined with --delete-data")
}

// components returns the process of each component.
func (m *machine) components(t *testing.T) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for _, c := range m.status(t).Components {
		pids[c.Name] = c.PID
	}
	return pids
}
