package qemu

import (
	"errors"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
)

func TestCheckMemory(t *testing.T) {
	d := &Driver{host: backend.Host{Name: "here"}}
	err := d.checkMemory(&backend.Machine{MemoryBytes: 16 << 40})
	if err == nil || !strings.Contains(err.Error(), "spec.resource.memory: 16777216 MiB is more than the ") {
		t.Errorf("16 TiB: %v", err)
	}
	if err := checkGuestMemory(guestimage.Guest{MinimumMemory: 96 << 20}, 64<<20); err == nil || !strings.Contains(err.Error(), "at least 96 MiB") {
		t.Errorf("too little for the guest: %v", err)
	}
	if err := checkGuestMemory(guestimage.Guest{MinimumMemory: 96 << 20}, 96<<20); err != nil {
		t.Errorf("enough for the guest: %v", err)
	}
}

// The memory of a machine changes only to one that it can start with. What does not concern the memory changes in any case.
func TestReconfigureChecksMemory(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	machine := booted()
	w.create(machine)
	for _, bytes := range []int64{64 << 20, 16 << 40} {
		changed := machine
		changed.Hash, changed.MemoryBytes = "changed", bytes
		var wrong *backend.FieldError
		if err := w.driver.Reconfigure(t.Context(), changed); !errors.As(err, &wrong) || wrong.Field != "spec.resource.memory" {
			t.Errorf("%d MiB: %v", bytes>>20, err)
		}
		if server := w.server(); server.Hash != machine.Hash {
			t.Errorf("%d MiB were accepted: %+v", bytes>>20, server)
		}
	}
	m := w.driver.machines[uid]
	m.mu.Lock()
	m.def.MemoryBytes = 64 << 20 // the guest needed no more when it was created
	m.mu.Unlock()
	machine.Hash, machine.MemoryBytes, machine.DiskBytes = "2", 64<<20, 64<<20
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.remove()
}
