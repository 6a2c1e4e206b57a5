package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// describeSnapshots lists the snapshots of machines; "" if there are none.
func describeSnapshots(snapshots []backend.StoredSnapshot) string {
	if len(snapshots) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nVirtualMachineSnapshots:\n\n")
	for _, s := range snapshots {
		fmt.Fprintf(&b, "  %-24s %d MiB  of %s at %s\n", s.Namespace+"/"+s.Name, mib(s.AllocatedBytes), s.Machine, s.TakenAt.UTC().Format(time.RFC3339))
	}
	return b.String()
}

// mib returns a size in MiB, rounded up.
func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
