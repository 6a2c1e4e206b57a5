package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestVirtualDisksAreListed(t *testing.T) {
	if got := describeVirtualDisks(nil); got != "" {
		t.Errorf("without disks: %q", got)
	}
	got := describeVirtualDisks([]backend.StoredDisk{
		{Namespace: "team", Name: "data", AttachedTo: "web", AllocatedBytes: 1, VirtualBytes: 2 << 20},
		{Namespace: "team", Name: "free", VirtualBytes: 1 << 20},
	})
	want := "\nVirtualDisks:\n\n" +
		"  team/data                1 MiB of 2 MiB  attached to web\n" +
		"  team/free                0 MiB of 1 MiB  not attached\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
