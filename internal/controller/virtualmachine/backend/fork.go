package backend

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// DisksDifferFrom returns why a new machine does not have the disks that the memory in a snapshot fits; empty if it has. taken has the sizes
// of the disks in the snapshot, in bytes, by name.
func (m *Machine) DisksDifferFrom(taken map[string]int64) string {
	if m.DiskBytes != 0 && m.DiskBytes != taken[v1alpha1.RootDiskName] {
		return "its root disk is not as large as that in the snapshot"
	}
	has := map[string]bool{v1alpha1.RootDiskName: true}
	for _, disk := range m.Disks {
		has[disk.Name] = true
		size, found := taken[disk.Name]
		if !found || disk.Image != nil || disk.VirtualDisk != "" || disk.SizeBytes != 0 && disk.SizeBytes != size {
			return fmt.Sprintf("its disk %s is not that in the snapshot", disk.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		if !has[name] {
			return fmt.Sprintf("it does not have the disk %s in the snapshot", name)
		}
	}
	return ""
}
