package qemu

import (
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// launch is a start of a machine.
type launch struct {
	qemu.Config

	machine backend.Machine
}

const (
	// guestCode is the buffer for translated code for each processor of the default guest, in MiB.
	// By default it grows to 1 GiB, nearly all of it code that runs once, at boot: 43 MB more for
	// each machine without a faster boot. Other guests may need it.
	guestCode = 32
	// pluggableMemory is the memory from which other guests than the default one get slots for
	// more. Linux reserves 64 MiB for that; the default guest is configured not to.
	pluggableMemory = 1 << 30
)

// newLaunch returns a start of a machine, without its files. plugs allows processors to be hot-plugged.
func newLaunch(machine backend.Machine, kvm, plugs bool) *launch {
	l := &launch{machine: machine, Config: qemu.Config{
		CPUs: vcpus(&machine), CPUModel: machine.CPUModel, KVM: kvm,
		MemoryBytes: machine.MemoryBytes, MaxMemoryBytes: maxMemory(&machine, machine.MemoryBytes),
		Display: machine.Display != "", Log: serialLog,
	}}
	l.identify(machine.Identity)
	if plugs {
		l.MaxCPUs = min(2*l.CPUs, 255)
	}
	if machine.Image == nil && !plugs {
		l.CodeMiB = guestCode
	}
	return l
}

// identify gives the QEMU the identity of a machine.
func (l *launch) identify(id backend.Identity) {
	l.Name, l.UUID = id.Namespace+"/"+id.Name, string(id.UID)
}

// addDisks adds disks of spec.disks. disksDir is the directory of those that are VirtualDisks.
func (l *launch) addDisks(disksDir string, records ...diskRecord) {
	for _, record := range records {
		l.Disks = append(l.Disks, qemu.Disk{Name: record.Name, Path: record.file(".", disksDir), Base: record.Base})
	}
}

func vcpus(m *backend.Machine) int64 { return max(1, m.MilliCPU/1000) }

// maxMemory returns the maximum memory of a machine without a restart, given its memory at boot.
func maxMemory(m *backend.Machine, boot int64) int64 {
	if m.Image != nil && boot < pluggableMemory {
		return boot
	}
	return 2 * boot
}
