//go:build linux

package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// keeper is a Pod with a claim of the default StorageClass, as a user without root.
const keeper = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000}
  containers:
  - {name: app, image: "app:v1", volumeMounts: [{name: kept, mountPath: /kept}]}
  volumes:
  - {name: kept, persistentVolumeClaim: {claimName: kept}}
`

// volume has a Pod write to a volume, and another one read it.
func volume(t *testing.T, u *user) {
	u.apply(t, keeper)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/keeper", "--timeout", transcript.WaitTimeout.String())
	file := filepath.Join(u.home, "letter")
	if err := os.WriteFile(file, []byte("dear one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, "cp", file, "keeper:/kept/letter")
	u.kubectl(t, "delete", "pod", "keeper")
	u.apply(t, keeper)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/keeper", "--timeout", transcript.WaitTimeout.String())
	u.hasLetter(t)
	u.apply(t, `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: sharer}
spec:
  containers: [{name: app, image: "app:v1"}]
  volumes:
  - {name: shared, persistentVolumeClaim: {claimName: shared}}
`)
	u.Until(t, "a claim that cannot be fulfilled says why", func(out string) bool { return out != "" },
		"kubectl", "get", "events", "--field-selector", "involvedObject.name=shared,reason=ProvisioningFailed", "-o", "jsonpath={.items[0].message}")
	transcript.Contains(t, u.kubectl(t, "describe", "pvc", "shared"), "access mode ReadWriteMany is not possible, because the volume is on one node")
	u.kubectl(t, "delete", "pod/sharer", "pvc/shared")
}

func (u *user) hasLetter(t *testing.T) {
	t.Helper()
	u.Until(t, "the file is in the volume", transcript.Is("dear one"), "kubectl", "exec", "keeper", "--", "/app", "show", "/kept/letter")
}

// volumeDeleted deletes a claim, which deletes the files.
func volumeDeleted(t *testing.T, u *user) {
	u.hasLetter(t) // after all that has happened before
	name := u.field(t, "pvc/kept", "{.spec.volumeName}")
	folder := filepath.Join(node.Dir(u.data, 0), "volumes", name)
	if _, err := os.Stat(folder); err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, "delete", "pod/keeper", "pvc/kept")
	u.kubectl(t, "wait", "--for=delete", "pv/"+name, "--timeout", transcript.WaitTimeout.String())
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("%s: %v", folder, err)
	}
}
