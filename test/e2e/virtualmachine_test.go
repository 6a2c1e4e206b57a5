package e2e

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const fakeMachine = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: fake-vm}\n" +
	"spec: {driver: fake, resource: {cpu: 2, memory: 1Gi}, ports: [{name: ssh, port: 22}]}\n"

// What the controller does, on the driver that makes no machines and says so.
func TestVirtualMachineInMemory(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.Stdin = fakeMachine
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready", "vm/fake-vm")
	columns := strings.Fields(s.kubectl(t, "get", "vm", "fake-vm", "-o", "wide"))
	want := "NAME STATUS CPU MEMORY AGE STATE DRIVER ADDRESSES RESTARTS READY fake-vm Active 1 10"
	if got := strings.Join(columns, " "); !strings.HasPrefix(got, want+" ") || !strings.HasSuffix(got, ` running fake ["10.0.2.15"] 0 True`) {
		t.Errorf("kubectl get vm shows %q", got)
	}

	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"paused"}}`)
	s.untilField(t, "vm/fake-vm", "{.status.phase} {.status.server.state}", "Active paused")
	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"stopped"}}`)
	s.untilField(t, "vm/fake-vm", "{.status.phase} {.status.server.state}", "Active stopped")
	s.kubectl(t, "patch", "vm/fake-vm", "--type", "merge", "-p", `{"spec":{"action":"active"}}`)
	s.wait(t, "condition=Ready", "vm/fake-vm")
	s.kubectl(t, "delete", "vm/fake-vm")

	// The same once more: the name is free again.
	s.Stdin = fakeMachine
	s.kubectl(t, "apply", "-f", "-")
	s.wait(t, "condition=Ready", "vm/fake-vm")
}

// A driver that is not there is named, and never replaced by another.
func TestVirtualMachineOfAMissingDriver(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: lost}\nspec: {driver: bhyve}\n"
	s.kubectl(t, "apply", "-f", "-")
	s.wait(t, "condition=Ready=False", "vm/lost")
	transcript.Contains(t, s.field(t, "vm/lost", "{.status.phase}: {.status.reason}"), "Failed: ", "bhyve", "--vm-driver=")
}
