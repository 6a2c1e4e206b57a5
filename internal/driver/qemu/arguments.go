package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// launch has everything that QEMU's command line is derived from.
type launch struct {
	machine backend.Machine
	kvm     bool
	// version is what QEMU prints about its version, if several processors are emulated.
	version string
	// plugs allows processors to be hot-plugged.
	plugs bool
	// hasDisk and hasSeed select the drives.
	hasDisk, hasSeed bool
	// user is the user of the process, nil for the manager's.
	user *sandbox.User
	// programs are directories that QEMU reads in addition to those of the system.
	programs []string
	// base is the backing file of the disk; nil if there is none.
	base *baseImage
	// mac is the address of the network card.
	mac string
	// firmware is the code of UEFI firmware; empty means BIOS. cdrom is the image in the drive; nil means no drive.
	firmware string
	cdrom    *baseImage
	// disks are the disks of spec.disks, and disksDir is the directory of those that are VirtualDisks.
	disks    []diskRecord
	disksDir string
	// saved is the saved memory that QEMU waits for; nil means that the machine boots.
	saved *savedMemory
	// memory is the path of a file of memory that the guest has as its own, see sharedMemory; empty means new memory. A machine maps
	// that of a template copy-on-write, and waits for the state of the devices.
	memory string
	// template means that this is the QEMU of a template, which writes to memory: it has no network and no drives, and the bridge of
	// the disks has the slot busSlot, which it has in machines.
	template bool
	busSlot  int
	// kernel, initrd and cmdline boot a kernel directly; empty boots the disk.
	kernel, initrd, cmdline string
}

const (
	// agentChannel is the name of the agent's channel in the guest.
	agentChannel = "org.qemu.guest_agent.0"
	// agentID is the name of the agent's device in QEMU.
	agentID = "agent"
	// blockNode is the block node of the root disk, blockFileNode that of its file.
	blockNode     = "root"
	blockFileNode = "root-file"
	// guestCode is the buffer for translated code for each processor of the default guest, in MiB.
	// By default it grows to 1 GiB, nearly all of it code that runs once, at boot: 43 MB more for
	// each machine without a faster boot. Other guests may need it.
	guestCode = 32
	// firstDriveSlot is the slot of the first drive: QEMU numbers devices in the order of the arguments.
	firstDriveSlot = 5
	// boardMemory is the name that QEMU gives the memory of a machine.
	boardMemory = "pc.ram"
	// balloonPath is the path of the balloon in QEMU's object model.
	balloonPath = "/machine/peripheral/balloon"
)

// arguments returns the command line of QEMU. QEMU opens no file by name, see confinement.
func (l *launch) arguments() []string {
	m := &l.machine
	_, h := l.confinement()
	cpus := vcpus(m)
	accel := "tcg,thread=" + guestboot.Threads(l.version, cpus)
	switch {
	case l.kvm:
		accel = "kvm"
	case m.Image == nil && !l.plugs:
		accel += fmt.Sprintf(",tb-size=%d", guestCode*cpus)
	}
	board := "q35,usb=off,smbus=off,vmport=off"
	if l.memory != "" {
		board += ",memory-backend=" + boardMemory
	}
	if l.firmware != "" {
		board += ",pflash0=firmware,pflash1=vars"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-name", "guest=" + escape(m.Namespace+"/"+m.Name) + ",debug-threads=on",
		"-uuid", string(m.UID),
		"-machine", board, "-accel", accel, "-cpu", l.cpuModel(),
		"-smp", fmt.Sprintf("cpus=%d,maxcpus=%d", cpus, l.maxCPUs()),
		"-m", memoryArgument(m),
		"-rtc", "base=utc,driftfix=slew",
		"-msg", "timestamp=on",
		"-boot", "strict=on",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		// QEMU waits, so that the manager can read why the guest ended.
		"-action", "shutdown=pause,panic=pause,reboot=reset",
		"-chardev", listening("qmp", h.monitor),
		"-mon", "chardev=qmp,mode=control",
		"-chardev", listening("human", h.human),
		"-mon", "chardev=human,mode=readline",
		"-add-fd", fdSet(h.log),
		"-chardev", listening("console", h.console) + ",logfile=" + fdSetPath(h.log) + ",logappend=on",
		"-device", "isa-serial,chardev=console",
		"-device", "virtio-serial-pci,id=serial",
		"-chardev", listening(agentID, h.agent),
		"-device", "virtserialport,id=agent-port,chardev=" + agentID + ",name=" + agentChannel,
		"-device", "virtio-balloon-pci,id=balloon,deflate-on-oom=on",
		"-device", "virtio-rng-pci,rng=rng", "-object", "rng-random,id=rng,filename=/dev/urandom",
		"-device", "pvpanic",
	}
	if !l.template {
		// The switch of the namespace connects to the machine. This way round it may come back at any
		// time: QEMU takes the next connection when the previous one has ended.
		args = append(args, "-netdev", fmt.Sprintf("stream,id=net,server=on,addr.type=fd,addr.str=%d", h.network),
			"-device", "virtio-net-pci,netdev=net,romfile=,mac="+l.mac)
	}
	args = append(args, l.drives(h)...)
	args = append(args, l.firmwareArguments(h)...)
	args = append(args, l.cdromArguments(h)...)
	args = append(args, l.dataDrives(h)...)
	args = append(args, l.displayArguments()...)
	args = append(args, append(l.memoryArguments(h), l.wakingArguments()...)...)
	if l.kernel != "" {
		args = append(args, "-kernel", sandbox.FDPath(h.kernel), "-append", l.cmdline)
		if l.initrd != "" {
			args = append(args, "-initrd", sandbox.FDPath(h.initrd))
		}
	}
	return args
}

// cpuModel returns the model of the processors.
func (l *launch) cpuModel() string {
	switch {
	case l.machine.CPUModel != "":
		return l.machine.CPUModel
	case l.kvm:
		return "host"
	}
	return "max"
}

// processors identifies the processors for saved memory.
func (l *launch) processors() string { return savedmemory.Processors(l.cpuModel(), l.kvm) }

// shape returns a digest of all devices that a machine has from its start to its end. Memory that was saved with other ones
// cannot be loaded. What a guest boots is not part of it.
func (l *launch) shape() string {
	bare := *l
	bare.disks, bare.saved, bare.memory, bare.cmdline, bare.version = nil, nil, "", "", ""
	sum := sha256.Sum256([]byte(strings.Join(bare.arguments(), "\x00")))
	return hex.EncodeToString(sum[:])
}

// isInstant reports whether the machine starts from a template.
func (l *launch) isInstant() bool { return l.memory != "" && !l.template }

// memoryArguments returns the arguments for memory that is in a file.
func (l *launch) memoryArguments(h handles) []string {
	if l.memory == "" {
		return nil
	}
	share := "off"
	if l.template {
		share = "on"
	}
	// The block of memory has the name that it has in a QEMU without such arguments: saved memory fits both.
	return []string{"-object", fmt.Sprintf("memory-backend-file,id=%s,size=%dk,mem-path=%s,share=%s,x-use-canonical-path-for-ramblock-id=off",
		boardMemory, l.machine.MemoryBytes>>10, sandbox.FDPath(h.memory), share)}
}

// wakingArguments returns the arguments of a QEMU that waits for saved memory: it does not run by itself, and has the memory
// that was plugged.
func (l *launch) wakingArguments() []string {
	if l.saved == nil && !l.isInstant() {
		return nil
	}
	args := []string{"-S", "-incoming", "defer"}
	if l.saved == nil {
		return args
	}
	for _, dimm := range l.saved.DIMMs {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=%s,size=%d", dimm.Backend, dimm.Size),
			"-device", fmt.Sprintf("pc-dimm,id=%s,memdev=%s,slot=%d,addr=%d", dimm.ID, dimm.Backend, dimm.Slot, dimm.Address))
	}
	return args
}

// diskDeviceAt returns the device of a disk of spec.disks, at the address that it had if its memory is loaded.
func (l *launch) diskDeviceAt(name string) map[string]any {
	device := diskDevice(name)
	if l.saved == nil {
		return device
	}
	for _, disk := range l.saved.Disks {
		if disk.Name == name {
			device["addr"] = disk.Address
		}
	}
	return device
}

// drives returns the arguments for the disk and the seed.
func (l *launch) drives(h handles) []string {
	var args []string
	if l.hasDisk {
		disk := map[string]any{"driver": formatQcow2, "node-name": blockNode, "discard": "unmap", "file": blockFileNode, "backing": nil}
		if l.base != nil {
			args = append(args, handedOver(h.base, "base-file", true)...)
			args = append(args, "-blockdev", blockdev(baseBlockdev(l.base, "base", "base-file")))
			disk["backing"] = "base"
		}
		args = append(args, handedOver(h.disk, blockFileNode, false)...)
		args = append(args, "-blockdev", blockdev(disk), "-device", "virtio-blk-pci,id=disk,drive="+blockNode+",serial=root,bootindex=1")
	}
	if l.hasSeed {
		args = append(args, handedOver(h.seed, "seed-file", true)...)
		args = append(args,
			"-blockdev", blockdev(map[string]any{"driver": formatRaw, "node-name": "seed", "read-only": true, "file": "seed-file"}),
			"-device", "virtio-blk-pci,drive=seed,serial=seed")
	}
	return args
}

// dataDrives returns the arguments for the disks of spec.disks, and for the bus that more can be plugged into.
func (l *launch) dataDrives(h handles) []string {
	bus := "pci-bridge,chassis_nr=1,id=" + diskBus
	if l.busSlot > 0 {
		bus += fmt.Sprintf(",addr=%x", l.busSlot)
	}
	args := []string{"-device", bus}
	for i, record := range l.disks {
		name := record.Name
		disk := map[string]any{"driver": formatQcow2, "node-name": diskNode(name), "discard": "unmap", "file": diskFileNode(name), "backing": nil}
		if record.Base != nil {
			args = append(args, handedOver(h.dataBases[i], baseFileNode(name), true)...)
			args = append(args, "-blockdev", blockdev(baseBlockdev(record.Base, baseNode(name), baseFileNode(name))))
			disk["backing"] = baseNode(name)
		}
		args = append(args, handedOver(h.dataDisks[i], diskFileNode(name), false)...)
		args = append(args, "-blockdev", blockdev(disk), "-device", blockdev(l.diskDeviceAt(name)))
	}
	return args
}

// listening returns a character device for a socket that is already listening.
func listening(id string, fd int) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, fd)
}

// fdSet adds a descriptor to QEMU under fdSetPath. Unlike sandbox.FDPath, that also works for files
// that QEMU's user could not open.
func fdSet(fd int) string     { return fmt.Sprintf("fd=%[1]d,set=%[1]d", fd) }
func fdSetPath(fd int) string { return fmt.Sprintf("/dev/fdset/%d", fd) }

// handedOver returns the arguments that make a descriptor a block node.
func handedOver(fd int, name string, readOnly bool) []string {
	return []string{"-add-fd", fdSet(fd) + ",opaque=" + name, "-blockdev", blockdev(diskbackup.FileNode(fdSetPath(fd), name, readOnly))}
}

// baseBlockdev returns the block node of the image of a disk, in the node file.
func baseBlockdev(base *baseImage, name, file string) map[string]any {
	node := map[string]any{"driver": base.Format, "node-name": name, "read-only": true, "file": file}
	if base.Format == formatQcow2 {
		node["backing"] = nil
	}
	return node
}

// blockdev returns the argument for a block node. It overrides the backing file that an image
// names; nil means none.
func blockdev(node map[string]any) string {
	raw, err := json.Marshal(node)
	if err != nil {
		panic(err) // a node always marshals
	}
	return string(raw)
}

// escape doubles commas, as QEMU's option syntax requires.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

func vcpus(m *backend.Machine) int64 { return max(1, m.MilliCPU/1000) }

// maxCPUs leaves room for hot-plugged processors, if those are possible.
func (l *launch) maxCPUs() int64 {
	cpus := vcpus(&l.machine)
	if !l.plugs {
		return cpus
	}
	return max(cpus, min(2*cpus, 255))
}

const (
	// memoryStep is the unit of hot-plugged memory: guests on x86 accept no less.
	memoryStep = 128 << 20
	// memorySlots is the number of times that memory can be plugged in a run.
	memorySlots = 8
	// pluggableMemory is the memory from which other guests than the default one get slots for
	// more. Linux reserves 64 MiB for that; the default guest is configured not to.
	pluggableMemory = 1 << 30
)

// maxMemory returns the maximum memory of a machine without a restart, given its memory at boot.
func maxMemory(m *backend.Machine, boot int64) int64 {
	if m.Image != nil && boot < pluggableMemory {
		return boot
	}
	return 2 * boot
}

func memoryArgument(m *backend.Machine) string {
	size := fmt.Sprintf("size=%dk", m.MemoryBytes>>10)
	if most := maxMemory(m, m.MemoryBytes); most > m.MemoryBytes {
		// Each plugged size is rounded up. QEMU requires whole pages.
		size += fmt.Sprintf(",slots=%d,maxmem=%dM", memorySlots, (most+memoryStep*memorySlots)>>20+1)
	}
	return size
}
