package launcher

import (
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

const (
	seedFile = "seed.img"
	// consoleFD is the descriptor of the serial console in the process that becomes QEMU. The locks follow.
	consoleFD = 3
)

// config returns the QEMU of the machine. guest is the default guest; nil boots the disk.
func (l *launcher) config(guest *guestimage.Guest) *qemu.Config {
	d := &l.definition
	c := &qemu.Config{
		Name: d.Namespace + "/" + d.Name, UUID: d.UID, CPUs: d.CPUs, CPUModel: d.CPUModel, KVM: d.KVM, Version: l.version, CodeMiB: d.CodeMiB,
		MemoryBytes: d.MemoryBytes, Display: d.Display, LogFD: consoleFD, Seed: filepath.Join(l.dirs.Run, seedFile),
		Halted: true, // until the launcher reads the events of the guest
	}
	for i := range l.locks {
		c.Held = append(c.Held, consoleFD+1+i)
	}
	for _, disk := range d.AllDisks() {
		drive := qemu.Disk{Name: disk.Name, Path: l.diskPath(disk)}
		if disk.Name == qemu.RootDisk {
			drive.Base = l.base
			c.Root = &drive
		} else {
			c.Disks = append(c.Disks, drive)
		}
	}
	if guest != nil {
		c.Kernel, c.Initrd, c.Cmdline = guest.Kernel, guest.Initramfs, guest.Cmdline
	}
	if l.memory != nil {
		c.Saved = &qemu.Plugged{}
	}
	return c
}
