package qemu

import (
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
