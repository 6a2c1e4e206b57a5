//go:build linux

package node

import (
	"strings"
	"testing"

	"github.com/coder/websocket"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// types types a line at the console of the machine, and waits until it shows a text.
func (u *user) types(t *testing.T, line, text string) {
	t.Helper()
	u.typesAt(t, "vm", line, text)
}

// typesAt is types for any machine.
func (u *user) typesAt(t *testing.T, machine, line, text string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	console, err := client.Dial(t.Context(), config, "default", machine, client.Console, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer console.CloseNow() //nolint:errcheck // it may be closed
	if err := console.Write(t.Context(), websocket.MessageBinary, []byte("\r"+line+"\r")); err != nil {
		t.Fatal(err)
	}
	for seen := ""; !strings.Contains(seen, text); {
		_, message, err := console.Read(t.Context())
		if err != nil {
			t.Fatalf("the console ends after %q: %v", seen, err)
		}
		seen += string(message)
	}
}

// setResource changes a field of spec.resource.
func (u *user) setResource(t *testing.T, field, value string) {
	t.Helper()
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"resource":{"`+field+`":"`+value+`"}}}`)
}

// awaitApplied waits until the last change of the machine is applied, in the same run.
func (u *user) awaitApplied(t *testing.T, run string) {
	t.Helper()
	generation := u.field(t, "virtualmachine/vm", "{.metadata.generation}")
	u.Until(t, "no change waits", transcript.Is(run+" False True "+generation), "kubectl", "get", "virtualmachine", "vm", "-o",
		`jsonpath={.status.server.run} {.status.conditions[?(@.type=="RestartRequired")].status} {.status.conditions[?(@.type=="DisksReady")].status} {.status.observedGeneration}`)
}

// balloonInPod takes memory from the guest, and gives it back.
func balloonInPod(t *testing.T, u *user) {
	run := u.run(t)
	u.types(t, `free() { sed -n 's/MemFree: *\(.*\) kB/\1/p' /proc/meminfo; }; before=$(free); echo free-$((40+2))`, "free-42")
	u.setResource(t, "memory", "144Mi")
	u.awaitApplied(t, run)
	u.types(t, "until [ $((before-$(free))) -gt 40000 ]; do sleep 0.1; done; echo less-$((40+2))", "less-42")
	u.setResource(t, "memory", "192Mi")
	u.awaitApplied(t, run)
	u.types(t, "until [ $((before-$(free))) -lt 20000 ]; do sleep 0.1; done; echo back-$((40+2))", "back-42")
}

// portInPod opens a port of the machine, and closes it.
func portInPod(t *testing.T, u *user) {
	run := u.run(t)
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"ports":[{"name":"web","port":8080}]}}`)
	u.awaitApplied(t, run)
	address := u.kubectl(t, "get", "pods", "--selector", ofMachines, "-o", "jsonpath={.items[*].status.podIP}") + ":8080"
	if got := u.field(t, "virtualmachine/vm", "{.status.server.endpoints[*].address}"); got != address {
		t.Errorf("the port is at %q, want %q", got, address)
	}
	pod := u.kubectl(t, "get", "pods", "--selector", ofMachines, "-o", "jsonpath={.items[*].metadata.name}")
	if got := u.kubectl(t, "get", "--raw", proxied(pod)+"hello"); got != "it serves" {
		t.Errorf("the port of the Pod serves %q", got)
	}
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"ports":null}}`)
	u.awaitApplied(t, run)
}

// refusedGrowthInPod grows the root disk, with a claim of the class local, which cannot.
func refusedGrowthInPod(t *testing.T, u *user) {
	pending := func() {
		t.Helper()
		u.Until(t, "the change is pending", func(out string) bool {
			return strings.Contains(out, "resource.rootDisk") && strings.Contains(out, "does not grow")
		}, "kubectl", "get", "virtualmachine", "vm", "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].message}`)
	}
	u.setResource(t, "rootDisk", "128Mi")
	pending()
	u.restart(t)
	pending()
}

// growInPod grows the root disk of the running machine. Volumes of the class local are folders, which have the room: the test does what
// the programs do that expand other volumes.
func growInPod(t *testing.T, u *user) {
	class := u.field(t, "pvc", "{.items[0].spec.storageClassName}")
	expands := func(value string) {
		t.Helper()
		u.kubectl(t, "patch", "storageclass", class, "-p", `{"allowVolumeExpansion":`+value+`}`)
	}
	expands("true")
	defer expands("false")
	run, claim := u.run(t), u.field(t, "pvc", "{.items[0].metadata.name}")
	u.setResource(t, "rootDisk", "192Mi")
	u.Until(t, "it waits for its volume", func(out string) bool { return strings.Contains(out, "Disk root: it grows when") },
		"kubectl", "get", "virtualmachine", "vm", "-o", `jsonpath={.status.conditions[?(@.type=="DisksReady")].message}`)
	u.kubectl(t, "patch", "pvc", claim, "--subresource=status", "--type=merge", "-p", `{"status":{"capacity":{"storage":"1Gi"}}}`)
	u.awaitApplied(t, run)
	u.types(t, "echo disk-$(cat /sys/block/vda/size)", "disk-393216")
}
