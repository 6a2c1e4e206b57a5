package e2e

import (
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A set is created, scaled, changed, and deleted, with machines of the driver fake.
func TestSmokeVirtualMachineSet(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.Stdin = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachineSet
metadata: {name: web}
spec:
  replicas: 2
  updateStrategy: {rollingUpdate: {maxUnavailable: 50%}}
  template:
    spec: {driver: fake, resource: {cpu: 1, memory: 128Mi}}
`
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready", "vmset/web")
	names := s.kubectl(t, "get", "vm", "--selector", "cloudnative.tw/virtualmachineset=web", "-o", "jsonpath={.items[*].metadata.name}")
	if names != "web-0 web-1" {
		t.Errorf("machines are %q", names)
	}

	// kubectl scale, up and down.
	s.kubectl(t, "scale", "vmset/web", "--replicas", "3")
	s.untilField(t, "vmset/web", "{.status.replicas} {.status.readyReplicas} {.status.updatedReplicas}", "3 3 3")
	s.wait(t, "condition=Ready", "vmset/web")
	s.kubectl(t, "scale", "vmset/web", "--replicas", "2")
	s.kubectl(t, "wait", "--for=delete", "vm/web-2", "--timeout", transcript.WaitTimeout.String())
	s.untilField(t, "vmset/web", "{.status.replicas} {.status.readyReplicas}", "2 2")

	// A change in place keeps the machines; one of the number of processors restarts them.
	uids := func() string { return s.kubectl(t, "get", "vm", "-o", "jsonpath={.items[*].metadata.uid}") }
	before := uids()
	s.kubectl(t, "patch", "vmset/web", "--type", "merge", "-p", `{"spec":{"template":{"spec":{"resource":{"cpu":2}}}}}`)
	for _, machine := range []string{"vm/web-1", "vm/web-0"} {
		s.until(t, machine+" was restarted", transcript.Not(""), "get", machine, "-o", "jsonpath={.status.lastRestartRequestedAt}")
	}
	s.untilField(t, "vmset/web", "{.status.updatedReplicas} {.status.readyReplicas}", "2 2")
	s.wait(t, "condition=Ready", "vmset/web")
	if after := uids(); after != before {
		t.Errorf("the machines were %s, and are %s", before, after)
	}

	// Another image requires new machines, which the webhook rejects: the driver fake runs no containers. None is deleted.
	s.kubectl(t, "patch", "vmset/web", "--type", "merge", "-p", `{"spec":{"template":{"spec":{"image":{"container":"busybox"}}}}}`)
	reason := `{.status.conditions[?(@.type=="Ready")].reason}`
	s.untilField(t, "vmset/web", reason, "TemplateRejected")
	s.kubectl(t, "patch", "vmset/web", "--type", "merge", "-p", `{"spec":{"template":{"spec":{"image":null}}}}`)
	s.untilField(t, "vmset/web", reason, "MachinesReady")
	if after := uids(); after != before {
		t.Errorf("the machines were %s, and are %s", before, after)
	}

	// The garbage collector deletes the machines with the set.
	s.kubectl(t, "delete", "vmset/web", "--cascade=foreground")
	s.until(t, "no machine is left", transcript.Is(""), "get", "vm", "-o", "name")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}
