package vm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
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
	if name := newMachineSnapshot("web", "", false, at).Name; name != "web-20260102-020405" {
		t.Errorf("the default name is %s", name)
	}
}

// A fork has the spec of its source, except for what belongs to one machine only.
func TestFork(t *testing.T) {
	size, now := resource.MustParse("1Gi"), metav1.Now()
	source := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1", Labels: map[string]string{"app": "web"}},
		Spec: v1alpha1.VirtualMachineSpec{
			Restore: &v1alpha1.VirtualMachineRestore{Snapshot: "other", RequestedAt: "1"},
			Action:  v1alpha1.ActionStopped, RestartedAt: &now, WokenAt: &now, Image: &v1alpha1.Image{Name: "debian-13"}, CPUModel: "host",
			Disks: []v1alpha1.Disk{
				{Name: "data", Size: &size, Image: &v1alpha1.DiskImage{Path: "/image"}}, {Name: "shared", VirtualDisk: "notes"},
			},
		},
	}
	want := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web-2"},
		Spec: v1alpha1.VirtualMachineSpec{
			Action: v1alpha1.ActionActive, Image: &v1alpha1.Image{Snapshot: "before"}, CPUModel: "host",
			Disks: []v1alpha1.Disk{{Name: "data", Size: &size}},
		},
	}
	if diff := cmp.Diff(want, newForkOf(source, "web-2", "before")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(source.Spec.Disks) != 2 || source.Spec.Disks[0].Image == nil {
		t.Error("the source has changed")
	}
}

func TestForkNames(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "--name is required: that of the new machine"},
		{[]string{"--name", "w", "--number", "0"}, "--number is 0; it must be from 1 to 100"},
		{[]string{"--name", "w", "--number", "101"}, "--number is 101; it must be from 1 to 100"},
	} {
		if _, err := execute(t, append([]string{"fork", "web"}, tt.args...)...); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.args, err, tt.want)
		}
	}
	if got, err := forkNames("w", 1, false); err != nil || !slices.Equal(got, []string{"w"}) {
		t.Errorf("without a number: %q, %v", got, err)
	}
	if got, err := forkNames("w", 2, true); err != nil || !slices.Equal(got, []string{"w-1", "w-2"}) {
		t.Errorf("two: %q, %v", got, err)
	}
}

func TestRestoreRequest(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	got := newMachineRestore("before", true, at)
	if diff := cmp.Diff(&v1alpha1.VirtualMachineRestore{Snapshot: "before", RequestedAt: "2026-01-02T02:04:05Z"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := newMachineRestore("before", false, at); got.KeepCurrent == nil || *got.KeepCurrent {
		t.Errorf("without a snapshot of the present disks: %+v", got)
	}
	if _, err := execute(t, "restore", "web"); err == nil || !strings.Contains(err.Error(), "--snapshot is required") {
		t.Errorf("without a snapshot: %v", err)
	}
}
