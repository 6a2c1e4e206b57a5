package status

import (
	"fmt"
	"strings"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// describeVirtualDisks lists VirtualDisks; "" if there are none.
func describeVirtualDisks(disks []backend.StoredDisk) string {
	if len(disks) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nVirtualDisks:\n\n")
	for _, disk := range disks {
		user := "not attached"
		if disk.AttachedTo != "" {
			user = "attached to " + disk.AttachedTo
		}
		fmt.Fprintf(&b, "  %-24s %d MiB of %d MiB  %s\n", disk.Namespace+"/"+disk.Name, mib(disk.AllocatedBytes), mib(disk.VirtualBytes), user)
	}
	return b.String()
}
