package qemu

import (
	"fmt"
	"os"
	"strings"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
)

// checkMemory rejects a new machine with more memory than the host has, or less than its guest needs.
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
	if bytes < g.MinimumMemory {
		return &backend.FieldError{Field: "spec.resource.memory", Message: fmt.Sprintf("the default guest needs at least %d MiB", g.MinimumMemory>>20)}
	}
	return nil
}

// hostMemory returns the memory and swap of the host in bytes, 0 if they are not known.
func hostMemory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parseMemory(string(raw))
}

// parseMemory returns the sum of MemTotal and SwapTotal in /proc/meminfo, in bytes; see proc_meminfo(5).
func parseMemory(meminfo string) int64 {
	var total int64
	for line := range strings.Lines(meminfo) {
		var name string
		var kib int64
		if _, err := fmt.Sscanf(line, "%s %d kB", &name, &kib); err == nil && (name == "MemTotal:" || name == "SwapTotal:") {
			total += kib << 10
		}
	}
	return total
}
