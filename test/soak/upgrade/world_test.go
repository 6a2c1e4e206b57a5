//go:build soak

package upgrade

import (
	"fmt"
	"maps"
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

// newConditions and newFields are conditions and defaults of spec that earlier versions do not have. An upgrade adds them.
var (
	newConditions = []string{"LastRunSucceeded", "RunsStuck", "DisksReady", "NodesReady"}
	newFields     = []string{"firmware"}
)

// absent returns the keys that no object has: lines with prefix, key and suffix.
func absent(snapshot map[string]string, keys []string, prefix, suffix string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(snapshot)), func(object string) bool {
			return strings.Contains(object, "\n"+prefix+key+suffix)
		})
	})
}

// checkNetwork checks that a running machine of a version without networks says that it needs a restart for one.
func (w *world) checkNetwork(t *testing.T, kubeconfig string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}}
	shell.Until(t, "RestartRequired names the network", func(text string) bool { return strings.HasPrefix(text, "True") && strings.Contains(text, "network") },
		"kubectl", "get", "vm", "firmware", "-o", `jsonpath={range .status.conditions[?(@.type=="RestartRequired")]}{.status} {.message}{end}`)
}

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
