//go:build linux

package node

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestSmokeNodes is the part of TestLongNodes that CI has time for.
func TestSmokeNodes(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	u := newUser(t)
	u.steps(t, []step{
		{"they are ready, and share the machine", upWithThree},
		{"an image is loaded into all of them", func(t *testing.T, u *user) { u.loadApp(t, "v1") }},
		{"each has a Pod, with logs, exec and port-forward", podOnEach},
		{"Pods reach each other, Services and the API", reachAcross},
		{"a node that is drained is empty", drained},
		{"the Pods of a lost node are replaced", lostForGood},
		{"down leaves nothing, up has fewer nodes", upWithTwo},
	})
}

func lostForGood(t *testing.T, u *user) {
	lost := node.Name(2)
	u.keelsonNode(t, "kill", lost)
	u.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+lost, "--timeout", transcript.WaitTimeout.String())
	u.outOfService(t, lost)
}

// TestSmokeMachinesInPods is the part of TestLongForksInPods and TestLongMachinesInPods that CI has time for.
func TestSmokeMachinesInPods(t *testing.T) {
	u := newPodsUser(t)
	u.steps(t, []step{
		{"the instance starts, with the images", upWithPods},
		{"a snapshot is taken", snapshotInPod},
		{"it sleeps without its Pod, and goes on", sleepInPod},
		{"it is restarted, and keeps its disks", func(t *testing.T, u *user) {
			u.vm(t, "restart", "vm", "--wait")
			u.kept(t, "vm", "before")
		}},
		{"it is restored with memory, and goes on", restoreMemoryInPod},
		{"a new machine goes on with the memory, as itself, and boots later", forkMemoryInPod},
		{"deleted, they leave nothing", deletedForksInPod},
	})
}
