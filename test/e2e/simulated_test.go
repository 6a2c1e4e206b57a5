package e2e

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// Pods on simulated nodes run nothing, and everything that would show a container says so.
func TestSmokeSimulatedPod(t *testing.T) {
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

// A simulated node refuses an image name that a kubelet would refuse, until it is corrected.
func TestSmokeSimulatedPodWithAnInvalidImage(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.kubectl(t, "run", "invalid", "--image=nginx", "--overrides", `{"spec": {"containers": [{"name": "invalid", "image": "not an image!"}]}}`)
	t.Cleanup(func() { s.kubectl(t, "delete", "pod", "invalid") })
	s.until(t, "the reason is shown", func(out string) bool { return strings.Contains(out, "InvalidImageName") }, "get", "pod", "invalid")
	transcript.Contains(t, s.field(t, "pod/invalid", "{.status.containerStatuses[0].state.waiting.message}"), `couldn't parse image name "not an image!"`)
	s.kubectl(t, "set", "image", "pod/invalid", "invalid=nginx:1.29")
	s.wait(t, "condition=Ready", "pod/invalid")
}
