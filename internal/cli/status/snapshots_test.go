package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestSnapshotsAreListed(t *testing.T) {
	if got := describeSnapshots(nil); got != "" {
		t.Errorf("without snapshots: %q", got)
	}
	got := describeSnapshots([]backend.StoredSnapshot{
		{Namespace: "team", Name: "before", Machine: "web", AllocatedBytes: 1, TakenAt: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)},
	})
	want := "\nVirtualMachineSnapshots:\n\n  team/before              1 MiB  of web at 2026-03-04T12:00:00Z\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
