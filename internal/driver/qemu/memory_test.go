package qemu

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
)

func TestParseMemory(t *testing.T) {
	const meminfo = "MemTotal:       24677712 kB\nMemFree:         1234 kB\nSwapTotal:       1048576 kB\nHugePages_Total:       0\n"
	if got, want := parseMemory(meminfo), int64(24677712+1048576)<<10; got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
	if got := parseMemory("nothing"); got != 0 {
		t.Errorf("got %d bytes of nothing", got)
	}
}

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
