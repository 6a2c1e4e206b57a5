// Package qemu is the command line of the QEMU of a machine, and its confinement. It is pure: it neither starts QEMU nor reads what it
// names. The drivers qemu and pod give their machines the same devices, so that what is known of one is true of both.
package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// The sockets of a QEMU in the folder of its machine.
const (
	MonitorSocket = "qmp.sock"
	HumanSocket   = "monitor.sock"
	ConsoleSocket = "console.sock"
	AgentSocket   = "agent.sock"
	NetworkSocket = "network.sock"
)

// KVMDevice is the device of hardware virtualization.
const KVMDevice = "/dev/kvm"

// Config has everything that the command line of a QEMU is derived from. Paths may be relative to the folder of the machine.
type Config struct {
	// Name is the name of the machine for people, and UUID that of its hardware.
	Name, UUID string
	// CPUs are the processors, and MaxCPUs what they may grow to by hot-plug; 0 means no more. CPUModel is their model; empty means that of
	// the host with KVM, and otherwise the one with all that can be emulated.
	CPUs, MaxCPUs int64
	CPUModel      string
	KVM           bool
	// Version is what QEMU prints about its version, if several processors are emulated.
	Version string
	// CodeMiB is the buffer for translated code of each emulated processor; 0 means the default of QEMU.
	CodeMiB int64
	// MemoryBytes is the memory, and MaxMemoryBytes what it may grow to by hot-plug; 0 means no more.
	MemoryBytes, MaxMemoryBytes int64
	// Display means that the machine has a display.
	Display bool
	// Log is the file that the output of the serial console is appended to; empty means the descriptor LogFD of the caller.
	Log   string
	LogFD int
	// Held are descriptors of the caller that QEMU keeps open until it ends.
	Held []int
	// MAC is the hardware address of the network card, to whose NetworkSocket a switch connects; empty means that of QEMU.
	MAC string
	// Root is the root disk; nil means none. Seed is the file of the seed; empty means none. Disks are the others.
	Root  *Disk
	Seed  string
	Disks []Disk
	// Firmware is the code of UEFI firmware, and Vars its variables; empty means BIOS. CDROM is the image in the drive; nil means no drive.
	Firmware, Vars string
	CDROM          *Image
	// Kernel, Initrd and Cmdline boot a kernel directly; empty boots the disk.
	Kernel, Initrd, Cmdline string
	// Halted means that the processors do not run until QEMU is told so.
	Halted bool
	// Saved has what was plugged into the machine whose memory QEMU waits for; nil means that it boots.
	Saved *Plugged
	// Memory is the path of a file of memory that the guest has as its own; empty means new memory. A machine maps that of a template, or of
	// a snapshot, copy-on-write, and waits for the state of the devices. FillsMemory means that QEMU writes to it: it loads Saved.
	Memory      string
	FillsMemory bool
	// Template means that this is the QEMU of a template, which writes to Memory: it has no network and no drives, and the bridge of the
	// disks has the slot BusSlot, which it has in machines.
	Template bool
	BusSlot  int
	// User is the user of the process, nil for that of the caller. Programs are directories that QEMU reads in addition to those of the
	// system.
	User     *sandbox.User
	Programs []string
}

// Image is an image that nobody writes to.
type Image struct {
	Path   string `json:"path"`
	Format string `json:"format"`
}

// Disk is a disk of the format qcow2.
type Disk struct {
	// Name is its serial number in the guest.
	Name string
	Path string
	// Base is its backing file; nil means none.
	Base *Image
}

// Plugged is what was plugged into a machine while it ran.
type Plugged struct {
	// Disks are the addresses of disks on their bus, by name.
	Disks []PluggedDisk `json:"disks,omitempty"`
	DIMMs []DIMM        `json:"dimms,omitempty"`
}

// PluggedDisk is a disk, and its address on the bus.
type PluggedDisk struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// DIMM is plugged memory.
type DIMM struct {
	ID      string `json:"id"`
	Backend string `json:"backend"`
	Size    int64  `json:"size"`
	Slot    int64  `json:"slot"`
	Address int64  `json:"address"`
}

// Waits reports whether QEMU waits for the state of a machine.
func (c *Config) Waits() bool { return c.Saved != nil || c.IsInstant() }

// IsInstant reports whether the machine starts from a template.
func (c *Config) IsInstant() bool { return c.Memory != "" && !c.Template && c.Saved == nil }

// Processors identifies the processors for saved memory.
func (c *Config) Processors() string { return savedmemory.Processors(c.cpuModel(), c.KVM) }

// Shape returns a digest of all devices that a machine has from its start to its end. Memory that was saved with other ones cannot be
// loaded. What a guest boots is not part of it, nor are the disks, which come and go, and what is outside of the machine.
func (c *Config) Shape() string {
	bare := *c
	bare.Disks, bare.Saved, bare.Memory, bare.Cmdline, bare.Version, bare.Halted = nil, nil, "", "", "", false
	bare.Held = nil
	sum := sha256.Sum256([]byte(strings.Join(bare.Arguments(), "\x00")))
	return hex.EncodeToString(sum[:])
}
