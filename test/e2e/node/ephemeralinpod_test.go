//go:build linux

package node

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// ephemeralInPod creates a machine that has new disks at each start, and no claim.
func ephemeralInPod(t *testing.T, u *user) {
	u.apply(t, strings.Replace(machineInPod, "spec:\n", "spec:\n  pod: {storage: Ephemeral}\n  disks: [{name: data, size: 32Mi}]\n", 1))
	u.awaitMachine(t)
	hasNewDisk := func() {
		t.Helper()
		if got := u.page(t, "disk"); got != "----" {
			t.Errorf("its disk begins with %q", got)
		}
	}
	hasNewDisk()
	u.restart(t)
	hasNewDisk()
	if claims := u.field(t, "pvc", "{.items[*].metadata.name}"); claims != "" {
		t.Errorf("it has the claims %s", claims)
	}
	u.kubectl(t, "patch", "virtualmachine", "vm", "--type=merge", "--patch", `{"spec":{"action":"asleep"}}`)
	message := []string{"kubectl", "get", "virtualmachine/vm", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`}
	u.Until(t, "it cannot sleep", func(out string) bool {
		return strings.Contains(out, "InvalidSpec") && strings.Contains(out, "has none")
	}, message...)
	transcript.Contains(t, u.Fails(t, 1, "kubectl", "patch", "virtualmachine", "vm", "--type=merge", "--patch", `{"spec":{"pod":{"storage":"Persistent"}}}`), "spec.pod.storage", "cannot be changed")
	deleteInPod(t, u)
}
