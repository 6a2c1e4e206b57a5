package e2e

import (
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// Pods on simulated nodes run nothing, and everything that would show a container says so.
func TestSimulatedPod(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.kubectl(t, "run", "simulated", "--image=nginx")
	t.Cleanup(func() { s.kubectl(t, "delete", "pod", "simulated") })
	s.wait(t, "condition=Ready", "pod/simulated")
	s.untilField(t, "pod/simulated", `{.status.conditions[?(@.type=="keelson.dev/Simulated")].status}`, "True")
	transcript.Contains(t, s.kubectl(t, "logs", "simulated"), "No container was started, so there are no logs.\n")
	for _, command := range [][]string{{"exec", "simulated", "--", "true"}, {"attach", "simulated"}, {"port-forward", "simulated", ":80"}} {
		transcript.Contains(t, s.Fails(t, 1, s.words(command)...), "this Pod is on a simulated node, which reports that it runs; no container was started")
	}
}
