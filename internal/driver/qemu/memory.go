package qemu

import (
	"fmt"

	"github.com/prometheus/procfs"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
)

// checkMemory rejects more memory than the host has, or less than the guest needs to boot.
func (d *Driver) checkMemory(machine *backend.Machine) error {
	if total := hostMemory(); total > 0 && machine.MemoryBytes > total {
		return &backend.FieldError{Field: "spec.resource.memory", Message: fmt.Sprintf(
			"%d MiB is more than the %d MiB of memory and swap of the host %s", machine.MemoryBytes>>20, total>>20, d.host.Name)}
	}
	if machine.Image != nil {
		return nil
	}
	guest, err := guestimage.Read(d.options.GuestDir)
	if err != nil {
		return nil //nolint:nilerr // the creation reports it, and retries
	}
	return checkGuestMemory(guest, machine.MemoryBytes)
}

// checkGuestMemory rejects less memory than the default guest needs.
func checkGuestMemory(g guestimage.Guest, bytes int64) error {
	if err := guestimage.CheckMemory(g.MinimumMemory, bytes); err != nil {
		return &backend.FieldError{Field: "spec.resource.memory", Message: err.Error()}
	}
	return nil
}

// hostMemory returns the memory and swap of the host in bytes, 0 if they are not known.
func hostMemory() int64 {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	memory, err := proc.Meminfo()
	if err != nil || memory.MemTotalBytes == nil || memory.SwapTotalBytes == nil {
		return 0
	}
	return int64(*memory.MemTotalBytes + *memory.SwapTotalBytes) //nolint:gosec // no memory is that large
}
