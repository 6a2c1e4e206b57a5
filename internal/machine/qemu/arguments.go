package qemu

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/driver/display"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

const (
	// AgentChardev is the name of the agent's character device.
	AgentChardev = "agent"
	// agentChannel is the name of the agent's channel in the guest.
	agentChannel = "org.qemu.guest_agent.0"
	// boardMemory is the name that QEMU gives the memory of a machine.
	boardMemory = "pc.ram"
	// BalloonPath is the path of the balloon in QEMU's object model.
	BalloonPath = "/machine/peripheral/balloon"
	// MemoryStep is the unit of hot-plugged memory in bytes: guests on x86 accept no less.
	MemoryStep = 128 << 20
	// MemorySlots is the number of times that memory can be plugged in a run.
	MemorySlots = 8
	// FirstDriveSlot is the slot of the first drive: QEMU numbers devices in the order of the arguments.
	FirstDriveSlot = 5
)

// Arguments returns the command line of QEMU without the program.
func (c *Config) Arguments() []string {
	_, h := c.confinement()
	board := "q35,usb=off,smbus=off,vmport=off"
	if c.Memory != "" {
		board += ",memory-backend=" + boardMemory
	}
	if c.Firmware != "" {
		board += ",pflash0=firmware,pflash1=vars"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-name", "guest=" + Escape(c.Name) + ",debug-threads=on",
		"-uuid", c.UUID,
		"-machine", board, "-accel", c.accelerator(), "-cpu", c.cpuModel(),
		"-smp", fmt.Sprintf("cpus=%d,maxcpus=%d", c.CPUs, max(c.CPUs, c.MaxCPUs)),
		"-m", c.memorySize(),
		"-rtc", "base=utc,driftfix=slew",
		"-msg", "timestamp=on",
		"-boot", "strict=on",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		// QEMU waits when the guest has ended, so that the cause is known.
		"-action", "shutdown=pause,panic=pause,reboot=reset",
		"-chardev", listening("qmp", h.monitor),
		"-mon", "chardev=qmp,mode=control",
		"-chardev", listening("human", h.human),
		"-mon", "chardev=human,mode=readline",
		"-add-fd", fdSet(h.log),
		"-chardev", listening("console", h.console) + ",logfile=" + FDSetPath(h.log) + ",logappend=on",
		"-device", "isa-serial,chardev=console",
		"-device", "virtio-serial-pci,id=serial",
		"-chardev", listening(AgentChardev, h.agent),
		"-device", "virtserialport,id=agent-port,chardev=" + AgentChardev + ",name=" + agentChannel,
		"-device", "virtio-balloon-pci,id=balloon,deflate-on-oom=on",
		"-device", "virtio-rng-pci,rng=rng", "-object", "rng-random,id=rng,filename=/dev/urandom",
		"-device", "pvpanic",
	}
	args = append(args, c.network(h)...)
	args = append(args, c.rootDrives(h)...)
	args = append(args, c.firmware(h)...)
	args = append(args, c.cdrom(h)...)
	args = append(args, c.dataDrives(h)...)
	if c.Display {
		args = append(args, display.Arguments()...)
	}
	args = append(args, c.memory(h)...)
	if c.Halted || c.Waits() {
		args = append(args, "-S")
	}
	if c.Waits() {
		args = append(args, "-incoming", "defer")
	}
	if c.Kernel != "" {
		args = append(args, "-kernel", sandbox.FDPath(h.kernel), "-append", c.Cmdline)
		if c.Initrd != "" {
			args = append(args, "-initrd", sandbox.FDPath(h.initrd))
		}
	}
	return args
}

func (c *Config) accelerator() string {
	if c.KVM {
		return "kvm"
	}
	accelerator := "tcg,thread=" + guestboot.Threads(c.Version, c.CPUs)
	if c.CodeMiB > 0 {
		accelerator += fmt.Sprintf(",tb-size=%d", c.CodeMiB*c.CPUs)
	}
	return accelerator
}

// cpuModel returns the model of the processors.
func (c *Config) cpuModel() string {
	if c.CPUModel == "" && c.KVM {
		return "host"
	}
	return cmp.Or(c.CPUModel, "max") // which does not depend on the host, because they are emulated
}

func (c *Config) memorySize() string {
	size := fmt.Sprintf("size=%dk", c.MemoryBytes>>10)
	if c.MaxMemoryBytes > c.MemoryBytes {
		// Each plugged size is rounded up. QEMU requires whole pages.
		size += fmt.Sprintf(",slots=%d,maxmem=%dM", MemorySlots, (c.MaxMemoryBytes+MemoryStep*MemorySlots)>>20+1)
	}
	return size
}

// network returns the arguments for the network card.
func (c *Config) network(h handles) []string {
	if c.Template {
		return nil
	}
	// The switch of the namespace connects to the machine. This way round it may come back at any time: QEMU takes the next connection
	// when the previous one has ended.
	backend, card := fmt.Sprintf("stream,id=net,server=on,addr.type=fd,addr.str=%d", h.network), "virtio-net-pci,netdev=net,romfile="
	if c.MAC != "" {
		card += ",mac=" + c.MAC
	}
	return []string{"-netdev", backend, "-device", card}
}

// firmware returns the arguments for UEFI firmware.
func (c *Config) firmware(h handles) []string {
	if c.Firmware == "" {
		return nil
	}
	raw := func(node, file string, readOnly bool) string {
		return encode(map[string]any{"driver": diskimage.Raw, "node-name": node, "read-only": readOnly, "file": file})
	}
	args := append(handedOver(h.firmware, "firmware-file", true), "-blockdev", raw("firmware", "firmware-file", true))
	args = append(args, handedOver(h.vars, "vars-file", false)...)
	return append(args, "-blockdev", raw("vars", "vars-file", false))
}

// memory returns the arguments for memory that is in a file, and for memory that was plugged.
func (c *Config) memory(h handles) (args []string) {
	if c.Memory != "" {
		share := "off"
		if c.Template || c.FillsMemory {
			share = "on"
		}
		// The block of memory has the name that it has in a QEMU without such arguments: saved memory fits both.
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=%s,size=%dk,mem-path=%s,share=%s,x-use-canonical-path-for-ramblock-id=off",
			boardMemory, c.MemoryBytes>>10, sandbox.FDPath(h.memory), share))
	}
	if c.Saved == nil {
		return args
	}
	for _, dimm := range c.Saved.DIMMs {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=%s,size=%d", dimm.Backend, dimm.Size),
			"-device", fmt.Sprintf("pc-dimm,id=%s,memdev=%s,slot=%d,addr=%d", dimm.ID, dimm.Backend, dimm.Slot, dimm.Address))
	}
	return args
}

// listening returns a character device for a socket that is already listening.
func listening(id string, fd int) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, fd)
}

// Escape doubles commas, as QEMU's option syntax requires.
func Escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
