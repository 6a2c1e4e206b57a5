package e2e

import (
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const servedMachine = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: served}\n" +
	"spec: {driver: fake, service: {}, ports: [{name: http, port: 80}]}\n"

// A machine has a Service that comes and goes with spec.service. The driver fake has no guest that Pods reach, and says so.
func TestSmokeServiceOfVirtualMachine(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.Stdin = servedMachine
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready", "vm/served")
	s.untilField(t, "vm/served", `{.status.conditions[?(@.type=="ServiceReady")].reason}`, "ServiceUnreachable")
	s.untilField(t, "service/served", "{.spec.ports[*].name} {.spec.ports[*].port}{.spec.selector}", "http 80")
	s.untilField(t, "endpointslice/served", "{.endpoints[*].addresses}", "")
	address := s.field(t, "service/served", "{.spec.clusterIP}")

	// The ports follow; without our label, the objects are still those of the machine.
	s.kubectl(t, "patch", "vm/served", "--type", "merge", "-p", `{"spec":{"ports":[{"name":"http","port":8080}]}}`)
	s.untilField(t, "service/served", "{.spec.ports[*].port}", "8080")
	for _, object := range []string{"service/served", "endpointslice/served"} {
		s.kubectl(t, "label", object, "cloudnative.tw/virtualmachine-")
		s.untilField(t, object, `{.metadata.labels.cloudnative\.tw/virtualmachine}`, "served")
	}
	if again := s.field(t, "service/served", "{.spec.clusterIP}"); again != address {
		t.Errorf("the address of the Service was %s, and is %s", address, again)
	}

	s.kubectl(t, "patch", "vm/served", "--type", "merge", "-p", `{"spec":{"service":null}}`)
	s.wait(t, "delete", "service/served")
	s.wait(t, "delete", "endpointslice/served")

	// A Service of somebody else stays.
	s.kubectl(t, "create", "service", "clusterip", "served", "--tcp=1:1")
	s.kubectl(t, "patch", "vm/served", "--type", "merge", "-p", `{"spec":{"service":{}}}`)
	s.untilField(t, "vm/served", `{.status.conditions[?(@.type=="ServiceReady")].reason}`, "ErrResourceExists")
	s.untilField(t, "service/served", "{.spec.ports[*].port} {.spec.selector.app}", "1 served")
	s.kubectl(t, "delete", "service", "served")
	s.untilField(t, "service/served", "{.spec.ports[*].port}", "8080")

	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: portless}\nspec: {driver: fake, service: {}}\n"
	transcript.Contains(t, s.Fails(t, 1, s.words([]string{"apply", "-f", "-"})...), "a Service needs at least one port in spec.ports")
}
