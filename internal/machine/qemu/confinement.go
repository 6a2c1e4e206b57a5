package qemu

import (
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// handles has the descriptors that QEMU inherits; 0 means none.
type handles struct {
	log, root, base, seed, kernel, initrd int
	firmware, vars, cdrom, memory         int
	// disks and bases are those of Config.Disks, in the same order.
	disks, bases                   []int
	monitor, human, console, agent int
	network                        int
}

// Confinement returns the sandbox of QEMU, which opens no file by name.
func (c *Config) Confinement() *sandbox.Spec {
	spec, _ := c.confinement()
	return spec
}

func (c *Config) confinement() (*sandbox.Spec, handles) {
	spec := &sandbox.Spec{User: c.User, Read: append([]string{"/sys/devices/system"}, c.Programs...), WorkDir: "/", NoConnect: true}
	var h handles
	for _, fd := range c.Held {
		spec.Inherit(fd)
	}
	if c.Log == "" {
		h.log = spec.Inherit(c.LogFD)
	} else {
		h.log = spec.Open(c.Log, sandbox.AppendOnly)
	}
	open := func(disk *Disk) (file, base int) {
		file = spec.Open(disk.Path, sandbox.ReadWrite)
		if disk.Base != nil {
			base = spec.Open(disk.Base.Path, sandbox.ReadOnly)
		}
		return file, base
	}
	if c.Root != nil {
		h.root, h.base = open(c.Root)
	}
	for i := range c.Disks {
		file, base := open(&c.Disks[i])
		h.disks, h.bases = append(h.disks, file), append(h.bases, base)
	}
	if c.Firmware != "" {
		h.firmware, h.vars = spec.Open(c.Firmware, sandbox.ReadOnly), spec.Open(c.Vars, sandbox.ReadWrite)
	}
	if c.CDROM != nil {
		h.cdrom = spec.Open(c.CDROM.Path, sandbox.ReadOnly)
	}
	if c.Seed != "" {
		h.seed = spec.Open(c.Seed, sandbox.ReadOnly)
	}
	if c.Kernel != "" {
		h.kernel = spec.Open(c.Kernel, sandbox.ReadOnly)
	}
	if c.Kernel != "" && c.Initrd != "" {
		h.initrd = spec.Open(c.Initrd, sandbox.ReadOnly)
	}
	if c.Memory != "" {
		h.memory = spec.Open(c.Memory, sandbox.Memory)
	}
	h.monitor, h.human = spec.Listen(MonitorSocket), spec.Listen(HumanSocket)
	h.console, h.agent = spec.Listen(ConsoleSocket), spec.Listen(AgentSocket)
	if !c.Template {
		h.network = spec.Listen(NetworkSocket)
	}
	if c.KVM {
		spec.Devices = append(spec.Devices, KVMDevice)
	}
	return spec, h
}
