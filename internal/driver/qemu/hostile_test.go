package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// QEMU's last output may be text that the guest wrote to its serial console.
func TestLastOutput(t *testing.T) {
	for name, test := range map[string]struct{ log, want string }{
		"of QEMU":            {"x\n2026-01-01T00:00:00.000000Z qemu-system-" + arch() + ": no room\n", "no room"},
		"nothing":            {"\n \n", "no output"},
		"control characters": {"\x1b[2J\x07hello\u202e\x00\xff there\r", "[2Jhello\ufffd there"},
		"too many":           {strings.Repeat("é", 1000), strings.Repeat("é", maxOutput/2) + " ..."},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lastOutput(test.log)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImplausibleMemory(t *testing.T) {
	for name, test := range map[string]struct {
		total, available uint64
		want             [2]int64
	}{
		"usual":                 {100, 30, [2]int64{70, 100}},
		"nothing reported":      {0, 0, [2]int64{}},
		"unknown values are -1": {1<<64 - 1, 1<<64 - 1, [2]int64{}},
		"more than its memory":  {201, 1, [2]int64{}},
		"more free than total":  {100, 101, [2]int64{}},
		"negative free":         {100, 1<<64 - 1, [2]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			used, of := clampMemory(test.total, test.available, 200)
			if diff := cmp.Diff(test.want, [2]int64{used, of}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A guest can change its reported state endlessly. Writes to the API are rate limited.
func TestGuestThatChangesAllTheTime(t *testing.T) {
	w := newFixture(t)
	var changed, reported, last atomic.Int32
	w.driver.Watch(func(backend.Identity) {
		reported.Add(1)
		last.Store(changed.Load())
	})
	m := newMachine(w.driver, definition{Machine: backend.Machine{Identity: backend.Identity{UID: uuid.NewUUID()}}})
	for i := range 1000 {
		changed.Add(1)
		m.ownerChanged(true)
		if i < notifyBurst {
			w.do(m.notification.Wait(t.Context()))
		}
	}
	if n := reported.Load(); n > 2*notifyBurst {
		t.Errorf("%d changes were reported", n)
	}
	harness.Eventually(t, "the last change is reported", func() bool { return last.Load() == changed.Load() })
}

// bootSector returns an image that runs 16-bit machine code.
func bootSector(t *testing.T, code ...byte) string {
	t.Helper()
	sector := make([]byte, 1<<20)
	copy(sector, code)
	sector[510], sector[511] = 0x55, 0xaa
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, sector, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Any guest can write to the ports of its devices, and QEMU sends an event for each of some writes.
func TestGuestThatFloodsEvents(t *testing.T) {
	for name, code := range map[string][]byte{
		"crashloaded events": {
			0xba, 0x05, 0x05, // mov dx, 0x505: pvpanic
			0xb0, 0x02, // mov al, 2
			0xee,       // out dx, al
			0xeb, 0xfd, // jmp -3
		},
		"resets": {
			0xba, 0xf9, 0x0c, // mov dx, 0xcf9: reset control
			0xb0, 0x06, // mov al, 6
			0xee,       // out dx, al
			0xeb, 0xfd, // jmp -3
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			machine := firmware(uid)
			machine.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: bootSector(t, code...), Format: diskimage.Raw}}
			w.run(machine)
			began, before := time.Now(), processorTime(t)
			other := w.firmware()
			other.UID, other.Name = "0b5b4d8e-0000-4000-8000-0000000000cc", "other"
			w.create(other)
			w.do(w.driver.Start(t.Context(), other))
			w.until(other, "it runs", is(backend.StateRunning))
			took, used := time.Since(began), processorTime(t)-before
			t.Logf("in %v this process used %v of processor time; %s", took, used, w.server().State)
			if used > took/2 {
				t.Errorf("%v of processor time in %v", used, took)
			}
			w.delete(other)
			w.remove()
		})
	}
}
