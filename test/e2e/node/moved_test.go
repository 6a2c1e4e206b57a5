//go:build linux

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/node"
)

// sharedVolume is a volume that each node reaches, as of a network file system, for the claim of a StorageClass without a provisioner.
const sharedVolume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: shared}
spec:
  storageClassName: shared
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: DIRECTORY, type: Directory}
`

// movedInPod drains the node of a machine whose volume each node reaches: it goes on with its memory on another node.
func movedInPod(t *testing.T, u *user) {
	shared := filepath.Join(u.home, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil { // Kubernetes does not change the owner of a hostPath
		t.Fatal(err)
	}
	if got := u.keelsonNode(t, "add"); got != "node/"+node.Name(1)+" added\n" {
		t.Errorf("got %q", got)
	}
	u.apply(t, strings.Replace(sharedVolume, "DIRECTORY", shared, 1))
	u.apply(t, strings.Replace(machineInPod, "spec:\n", "spec:\n  pod: {storageClassName: shared, evictionPolicy: Sleep}\n", 1))
	u.awaitMachine(t)
	placed := func() string {
		return u.kubectl(t, "get", "pods", "--selector", ofMachines, "-o", "jsonpath={.items[*].spec.nodeName}")
	}
	from, boot, run, uid := placed(), u.page(t, "boot"), u.run(t), u.field(t, "virtualmachine/vm", "{.metadata.uid}")
	most, began := watchProcesses(t, uid), time.Now()
	u.OK(t, "kubectl", "drain", from, "--pod-selector", ofMachines, "--delete-emptydir-data", "--timeout=120s")
	u.awaitOtherRun(t, run)
	t.Logf("it moved in %.1f s", time.Since(began).Seconds())
	if to := placed(); to == from || to == "" {
		t.Errorf("it was on %s, and is on %q", from, to)
	}
	if now := u.page(t, "boot"); now != boot || boot == "" {
		t.Errorf("its guest has booted: the boot %q was %q", now, boot)
	}
	if n := most(); n != 1 {
		t.Errorf("it ran %d times at once", n)
	}
	u.kubectl(t, "uncordon", from)
	deleteInPod(t, u)
	u.kubectl(t, "delete", "pv", "shared")
	u.keelsonNode(t, "remove", node.Name(1))
}
