package qemu

import (
	"fmt"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// savedMemory describes the saved memory of a machine that is asleep, and what it fits. The definition of a machine has it
// from when the file is complete until just before the machine goes on. As long as it is there, no QEMU of the machine runs
// the guest: one that exists is about to end.
type savedMemory struct {
	backend.SleepOptions
	savedmemory.Memory
	qemu.Plugged

	// Run is the run that was saved.
	Run string `json:"run"`
}

// size returns the size of the file; 0 if there is none.
func (s *savedMemory) size() int64 {
	if s == nil {
		return 0
	}
	return s.Size
}

// countSaved counts the bytes of the saved memory of the machine so far. It fails if that of all machines exceeds the limit.
func (m *machine) countSaved(size int64) error {
	m.savedBytes.Store(size)
	return m.d.checkSaved()
}

// checkSaved fails if the saved memory of all machines and snapshots exceeds the limit.
func (d *Driver) checkSaved() error {
	limit := d.options.MaxSavedBytes
	if limit == 0 {
		return nil
	}
	var total int64
	for _, each := range d.all() {
		total += each.savedBytes.Load()
	}
	d.mu.Lock()
	for _, each := range d.snapshots {
		total += each.savedBytes.Load()
	}
	d.mu.Unlock()
	if total > limit {
		return fmt.Errorf("the machines of this host that are asleep, and the snapshots with memory, would need more than the %d bytes that "+
			"virtualMachines.stateMax allows: wake or delete a machine, delete a snapshot, or increase the limit", limit)
	}
	return nil
}
