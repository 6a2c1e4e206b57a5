//go:build soak

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/internal/testing/steady"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// world is the installation under test.
type world struct {
	steady.Objects
	state string
}

// processes returns the running machines and components of clusters.
func (w *world) processes() []string {
	all := slices.DeleteFunc(transcript.Left(w.state), func(line string) bool { return strings.Contains(line, " manager --") })
	slices.Sort(all)
	return all
}

// deleteAll deletes everything and waits until nothing is left outside of the API: the current
// version can delete what the earlier one created.
func (w *world) deleteAll(t *testing.T, kubeconfig string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}}
	shell.OK(t, "kubectl", "delete", "keelson", "--all", "--timeout=50s")
	harness.Eventually(t, "no process is left", func() bool { return len(w.processes()) == 0 })
}

// endAll ends the leftovers of a failed test.
func endAll(t *testing.T, state string) {
	if !t.Failed() {
		return
	}
	for _, line := range transcript.Left(state) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil {
			signals.Try(t, pid, syscall.SIGKILL)
		}
	}
}
