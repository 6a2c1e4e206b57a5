//go:build linux

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// request sets spec.action.
func (u *user) request(t *testing.T, action string) {
	t.Helper()
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"action":"`+action+`"}}`)
}

// sleep puts the machine to sleep.
func (u *user) sleep(t *testing.T) {
	t.Helper()
	began := time.Now()
	u.request(t, "asleep")
	u.awaitAsleep(t)
	t.Logf("asleep after %.1f s", time.Since(began).Seconds())
	if n := countQEMU(u.field(t, "virtualmachine/vm", "{.metadata.uid}")); n != 0 {
		t.Errorf("%d QEMUs run", n)
	}
}

func (u *user) awaitAsleep(t *testing.T) {
	t.Helper()
	u.kubectl(t, "wait", "--for=jsonpath={.status.server.state}=Asleep", "virtualmachine/vm", "--timeout", transcript.WaitTimeout.String())
}

// wake wakes the machine, and returns its page boot.
func (u *user) wake(t *testing.T) string {
	t.Helper()
	began := time.Now()
	u.request(t, "active")
	u.awaitMachine(t)
	t.Logf("ready again after %.1f s", time.Since(began).Seconds())
	return u.page(t, "boot")
}

// sleepInPod deletes the Pod of the machine and kills the manager while it is asleep.
func sleepInPod(t *testing.T, u *user) {
	boot := u.page(t, "boot")
	u.sleep(t)
	u.killManager(t)
	u.kubectl(t, "delete", "pod", "--selector", ofMachines)
	u.startPods(t)
	u.awaitAsleep(t)
	if now := u.wake(t); now != boot || boot == "" {
		t.Errorf("its guest has booted: the boot %q was %q", now, boot)
	}
}

// damagedInPod damages the memory of a machine that is asleep, on the volume of its root disk.
func damagedInPod(t *testing.T, u *user) {
	boot := u.page(t, "boot")
	u.sleep(t)
	damaged := 0
	err := filepath.WalkDir(u.data, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name() == "memory.zst" {
			damaged++
			return os.Truncate(path, 1000)
		}
		return nil // other files come and go
	})
	if err != nil || damaged != 1 {
		t.Fatalf("%d files of memory were damaged: %v", damaged, err)
	}
	if now := u.wake(t); now == boot {
		t.Error("its guest goes on")
	}
	u.Until(t, "an event says why", func(out string) bool { return strings.Contains(out, "memory.zst has 1000 bytes") },
		"kubectl", "get", "events", "--field-selector", "reason=MemoryLost", "-o", "jsonpath={.items[*].message}")
}

// drainInPod drains the node of the machine: with the policy None that is refused, and with Sleep it goes on afterwards.
func drainInPod(t *testing.T, u *user) {
	policy := func(policy string) {
		t.Helper()
		u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"pod":{"evictionPolicy":`+policy+`}}}`)
	}
	node, uid := u.field(t, "nodes", "{.items[0].metadata.name}"), u.field(t, "virtualmachine/vm", "{.metadata.uid}")
	drain := []string{"kubectl", "drain", node, "--pod-selector", ofMachines, "--delete-emptydir-data"}
	policy(`"None"`)
	u.Until(t, "its budget counts it", transcript.Is("1 0"), "kubectl", "get", "poddisruptionbudgets", "--selector", ofMachines,
		"-o", "jsonpath={.items[*].status.currentHealthy} {.items[*].status.disruptionsAllowed}")
	before := u.run(t)
	transcript.Contains(t, u.Fails(t, 1, append(drain, "--timeout=5s")...), "disruption budget")
	u.kubectl(t, "uncordon", node)
	u.awaitMachine(t)
	if now := u.run(t); now != before {
		t.Errorf("it was evicted: the run %s was %s", now, before)
	}

	policy(`"Sleep"`)
	u.Until(t, "its budget is gone", transcript.Is(""), "kubectl", "get", "poddisruptionbudgets", "--selector", ofMachines, "-o", "name")
	u.Until(t, "the change is pending", func(out string) bool { return strings.Contains(out, "pod.evictionPolicy") },
		"kubectl", "get", "virtualmachine", "vm", "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].message}`)
	u.restart(t)
	boot, run := u.page(t, "boot"), u.run(t)
	most, began := watchProcesses(t, uid), time.Now()
	u.OK(t, append(drain, "--timeout=120s")...)
	t.Logf("drained after %.1f s", time.Since(began).Seconds())
	if n := countQEMU(uid); n != 0 {
		t.Errorf("%d QEMUs run on the node", n)
	}
	u.kubectl(t, "uncordon", node)
	u.awaitOtherRun(t, run)
	if now := u.page(t, "boot"); now != boot || boot == "" {
		t.Errorf("its guest has booted: the boot %q was %q", now, boot)
	}
	if n := most(); n != 1 {
		t.Errorf("it ran %d times at once", n)
	}
	policy("null") // the next restart applies it
}
