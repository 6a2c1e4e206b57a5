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

// newConditions are conditions of CronTabs that earlier versions do not have. An upgrade adds them.
var newConditions = []string{"LastRunSucceeded", "RunsStuck"}

// confine adds to the Deployment of the Foo the pod settings that earlier versions did not have:
// the only known change of an upgrade to a child object, see docs/operations.md. The earlier manager
// treats them as additions of others.
func (w *world) confine(t *testing.T, kubeconfig string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}}
	shell.OK(t, "kubectl", "patch", "deployment", "web", "--patch", `{"spec": {"template": {"spec": {
		"automountServiceAccountToken": false, "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
		"containers": [{"name": "foo", "securityContext": {"allowPrivilegeEscalation": false}}]}}}}`)
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
