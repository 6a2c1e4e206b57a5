package vm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSnapshotManifest(t *testing.T) {
	got, err := execute(t, "snapshot", "web", "--name", "before", "--namespace", "team", "--dry-run=client", "-o", "yaml")
	want := `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachineSnapshot
metadata:
  name: before
  namespace: team
spec:
  virtualMachineName: web
`
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	got, err = execute(t, "snapshot", "web", "--name", "gold", "--allow-namespace", "a", "--allow-namespace", "b", "--dry-run=client", "-o", "yaml")
	if err != nil || !strings.HasSuffix(got, "spec:\n  allowedNamespaces:\n  - a\n  - b\n  virtualMachineName: web\n") {
		t.Errorf("for other namespaces: %v\n%s", err, got)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	if name := newMachineSnapshot(strings.Repeat("a", 253), "", false, at).Name; len(name) > 253 || !strings.HasSuffix(name, "-20260102-020405") {
		t.Errorf("the default name for a machine with the longest name is %s", name)
	}
	if name := newMachineSnapshot("web", "", false, at).Name; name != "web-20260102-020405" {
		t.Errorf("the default name is %s", name)
	}
}

func TestRestoreNeedsASnapshot(t *testing.T) {
	if _, err := execute(t, "restore", "web"); err == nil || !strings.Contains(err.Error(), "--snapshot is required") {
		t.Errorf("without a snapshot: %v", err)
	}
}
