package qemu

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
)

// bootText returns a boot sector for a BIOS that writes a text to the serial port, and halts.
func bootText(text string) []byte {
	code := []byte{
		0xfa,       // cli
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x16, 0x7c, // mov si, 0x7c16: the text
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: the data register of the first serial port
		0xac,       // lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz to the end
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp to lodsb
		0xf4,       // hlt
		0xeb, 0xfd, // jmp to hlt
	}
	sector := make([]byte, 512)
	copy(sector, code)
	copy(sector[0x16:], text)
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// bootableCD returns the path of the smallest CD-ROM image that a BIOS boots a sector from, after the specification of
// El Torito.
func bootableCD(t *testing.T, text string) string {
	t.Helper()
	const sector = 2048
	image := make([]byte, 32*sector)
	at := func(n int) []byte { return image[n*sector:] }
	copy(at(16), "\x01CD001\x01")
	copy(at(17), "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(at(17)[0x47:], 19) // the boot catalog
	copy(at(18), "\xffCD001\x01")
	catalog := at(19)
	catalog[0], catalog[0x1e], catalog[0x1f] = 1, 0x55, 0xaa
	binary.LittleEndian.PutUint16(catalog[0x1c:], 0x55aa) // the sum of all words is 0
	catalog[0x20] = 0x88                                  // bootable, without emulation of a floppy disk
	binary.LittleEndian.PutUint16(catalog[0x26:], 4)
	binary.LittleEndian.PutUint32(catalog[0x28:], 20)
	copy(at(20), bootText(text))
	path := filepath.Join(t.TempDir(), "installer.iso")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A machine boots from its CD-ROM drive only if it cannot boot from its root disk, and the drive can be removed.
func TestBootFromCDROM(t *testing.T) {
	w := newFixture(t)
	none := false
	machine := firmware(uid)
	machine.Image = &v1alpha1.Image{Empty: true, Agent: &none}
	machine.CDROM = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: bootableCD(t, "booted from the CD-ROM")}}
	w.run(machine)
	w.shows("booted from the CD-ROM")
	machine.Hash, machine.CDROM = "2", nil
	w.do(w.driver.Reconfigure(t.Context(), machine))
	if got := strings.Join(w.server().Pending, " "); got != "cdrom" {
		t.Errorf("pending are %q", got)
	}
	w.stops()
	if server := w.starts(machine); len(server.Pending) > 0 {
		t.Errorf("pending are %v", server.Pending)
	}
	w.remove()

	disk := filepath.Join(t.TempDir(), "disk.raw")
	w.do(os.WriteFile(disk, append(bootText("booted from the disk"), make([]byte, 1<<20-512)...), 0o600))
	machine.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: disk}, Agent: &none}
	machine.CDROM = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: bootableCD(t, "booted from the CD-ROM")}}
	w.run(machine)
	w.shows("booted from the disk")
	w.remove()
}

// A model of processors that QEMU does not know is named in the failure.
func TestUnknownCPUModel(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	machine.CPUModel = "no-such-model"
	w.create(machine)
	w.do(w.driver.Start(t.Context(), machine))
	server := w.eventually("the start fails", func(s *backend.Server) bool {
		return s.Ended != nil && s.Task == backend.TaskNone && s.Ended.Cause == backend.CauseStartFailed
	})
	if want := "unable to find CPU model 'no-such-model'"; !strings.Contains(server.Ended.Message, want) {
		t.Errorf("the failure is %q, want %q", server.Ended.Message, want)
	}
	machine.Hash, machine.CPUModel = "2", "qemu64"
	w.starts(machine)
	w.remove()
}

// A kernel boots with UEFI, disks can be plugged there as well, and it goes on after sleep. The kernel of the default guest has no loader for UEFI
// any more, so the test takes the one of the distribution that it was made from.
func TestLongKernelBootsWithUEFI(t *testing.T) {
	needGuest(t)
	if err := checkFirmware(v1alpha1.FirmwareUEFI); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	parts, err := exec.Command(filepath.Join("..", "..", "..", "hack", "guest-parts.sh")).Output()
	if err != nil {
		t.Fatalf("find the kernel of the default guest: %v", err)
	}
	kernel, _, _ := strings.Cut(string(parts), "\n")
	w := newFixture(t)
	guest, err := guestimage.Read(w.driver.options.GuestDir)
	w.do(err)
	machine := booted(func(m *backend.Machine) { m.MemoryBytes, m.Firmware = 512<<20, v1alpha1.FirmwareUEFI })
	if err := Validate(&machine); err == nil {
		t.Error("the default guest with UEFI was accepted")
	}
	machine.Image = &v1alpha1.Image{Kernel: kernel, Initrd: guest.Initramfs, Cmdline: guest.Cmdline}
	w.run(machine)
	w.shell()
	w.typed("test -d /sys/firmware/efi && echo efi-$((40+2))")
	w.shows("efi-42")
	machine.Hash, machine.Disks = "2", []backend.Disk{{Name: "data", SizeBytes: 8 << 20}}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.typed("until [ -b /dev/disk/by-id/virtio-data ]; do sleep 0.1; done; echo plugged-$((40+2))")
	w.shows("plugged-42")
	w.typed("kept=40")
	w.sleeps()
	if w.starts(machine); !w.wasWoken() {
		t.Error("it boots after sleep")
	}
	w.reconnect()
	w.typed("test -d /sys/firmware/efi && test -b /dev/disk/by-id/virtio-data && echo awake-$((kept+2))")
	w.shows("awake-42")
	w.remove()
}
