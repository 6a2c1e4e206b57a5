package qemu

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// launch is what a QEMU is started with.
type launch struct {
	machine backend.Machine
	kvm     bool
	// plugs says that processors can be added while it runs.
	plugs bool
	// hasDisk and hasSeed tell which drives there are.
	hasDisk, hasSeed bool
	// user is that of the process, nil for the manager's.
	user *sandbox.User
	// programs are directories that QEMU reads beside those of the system.
	programs []string
	// base is the image that the disk is an overlay of; nil if it is none.
	base *baseImage
	// kernel, initrd and cmdline boot a kernel directly; empty boots the disk.
	kernel, initrd, cmdline string
	// hostPorts are the ports of the host by the names of the machine's.
	hostPorts map[string]int
}

const (
	// agentChannel is the name by which guests know the channel of their agent.
	agentChannel = "org.qemu.guest_agent.0"
	// agentID is how our QEMUs call it.
	agentID = "agent"
	// blockNode is how our QEMUs call the disk, diskNode how the file that it is in.
	blockNode = "root"
	diskNode  = "root-file"
	// guestCode is how much translated code QEMU keeps for each processor of our own guest,
	// in MiB. Left alone it keeps up to 1 GiB, nearly all of which ran once, at boot: 43 MB
	// more for each machine, and the boot is no quicker. Guests of others may need it.
	guestCode = 32
	// balloonPath is where the balloon is in the object model of QEMU.
	balloonPath = "/machine/peripheral/balloon"
)

// arguments returns the command line of QEMU, which opens no file by its name: see confinement.
func (l *launch) arguments() []string {
	m := &l.machine
	_, h := l.confinement()
	cpus := vcpus(m)
	accel, cpu := "tcg,thread=multi", "max"
	switch {
	case l.kvm:
		accel, cpu = "kvm", "host"
	case m.Image == nil && !l.plugs:
		accel += fmt.Sprintf(",tb-size=%d", guestCode*cpus)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-name", "guest=" + escape(m.Namespace+"/"+m.Name) + ",debug-threads=on",
		"-uuid", string(m.UID),
		"-machine", "q35,usb=off,smbus=off,vmport=off", "-accel", accel, "-cpu", cpu,
		"-smp", fmt.Sprintf("cpus=%d,maxcpus=%d", cpus, l.maxCPUs()),
		"-m", memoryArgument(m),
		"-rtc", "base=utc,driftfix=slew",
		"-msg", "timestamp=on",
		"-boot", "strict=on",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		// What ended the guest can be read until somebody has.
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
		"-netdev", l.network(),
		"-device", "virtio-net-pci,netdev=net,romfile=,mac=" + mac(m),
	}
	args = append(args, l.drives(h)...)
	if l.kernel != "" {
		args = append(args, "-kernel", sandbox.FDPath(h.kernel), "-append", l.cmdline)
		if l.initrd != "" {
			args = append(args, "-initrd", sandbox.FDPath(h.initrd))
		}
	}
	return args
}

// drives returns the arguments for the disk and the seed.
func (l *launch) drives(h handles) []string {
	var args []string
	if l.hasDisk {
		disk := map[string]any{"driver": formatQcow2, "node-name": blockNode, "discard": "unmap", "file": diskNode, "backing": nil}
		if l.base != nil {
			args = append(args, handedOver(h.base, "base-file", true)...)
			base := map[string]any{"driver": l.base.Format, "node-name": "base", "read-only": true, "file": "base-file"}
			if l.base.Format == formatQcow2 {
				base["backing"] = nil
			}
			args = append(args, "-blockdev", blockdev(base))
			disk["backing"] = "base"
		}
		args = append(args, handedOver(h.disk, diskNode, false)...)
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

// listening returns a character device that is a socket which listens already.
func listening(id string, fd int) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, fd)
}

// fdSet has QEMU know a descriptor under fdSetPath. Unlike sandbox.FDPath, that opens also what its user could not.
func fdSet(fd int) string     { return fmt.Sprintf("fd=%[1]d,set=%[1]d", fd) }
func fdSetPath(fd int) string { return fmt.Sprintf("/dev/fdset/%d", fd) }

// handedOver returns the arguments that make a descriptor a node for other nodes.
func handedOver(fd int, name string, readOnly bool) []string {
	node := map[string]any{"driver": "file", "node-name": name, "filename": fdSetPath(fd), "read-only": readOnly}
	if !readOnly {
		node["discard"] = "unmap"
	}
	return []string{"-add-fd", fdSet(fd), "-blockdev", blockdev(node)}
}

// blockdev returns the argument for a node. What an image says about its backing file does not count: nil is none.
func blockdev(node map[string]any) string {
	raw, err := json.Marshal(node)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	return string(raw)
}

// network returns the network of the machine: its own, behind this process, with ports
// on loopback.
func (l *launch) network() string {
	words := []string{"user", "id=net"}
	ports := map[string]v1alpha1.Port{}
	for _, port := range l.machine.Ports {
		ports[port.Name] = port
	}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		words = append(words, fmt.Sprintf("hostfwd=%s:127.0.0.1:%d-:%d", transport(ports[name].Protocol), l.hostPorts[name], ports[name].Port))
	}
	return strings.Join(words, ",")
}

func transport(protocol v1alpha1.Protocol) string {
	if protocol == v1alpha1.ProtocolUDP {
		return "udp"
	}
	return "tcp"
}

// escape doubles the commas of a value, as QEMU has it.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }

func vcpus(m *backend.Machine) int64 { return max(1, m.MilliCPU/1000) }

// maxCPUs leaves room to add processors while the machine runs, if that can be done.
func (l *launch) maxCPUs() int64 {
	cpus := vcpus(&l.machine)
	if !l.plugs {
		return cpus
	}
	return max(cpus, min(2*cpus, 255))
}

const (
	// memoryStep is what memory is plugged in by: guests on x86 take no less.
	memoryStep = 128 << 20
	// memorySlots is how often memory can be plugged in during a run.
	memorySlots = 8
	// pluggableMemory is from how much memory on a guest that is not ours gets more
	// plugged in. Linux sets 64 MiB aside where that can happen; ours is told not to.
	pluggableMemory = 1 << 30
)

// maxMemory returns how much memory a machine can have without a restart, if it is
// started with so much.
func maxMemory(m *backend.Machine, boot int64) int64 {
	if m.Image != nil && boot < pluggableMemory {
		return boot
	}
	return 2 * boot
}

func memoryArgument(m *backend.Machine) string {
	size := fmt.Sprintf("size=%dk", m.MemoryBytes>>10)
	if most := maxMemory(m, m.MemoryBytes); most > m.MemoryBytes {
		// What is plugged in is rounded up each time. QEMU wants whole pages.
		size += fmt.Sprintf(",slots=%d,maxmem=%dM", memorySlots, (most+memoryStep*memorySlots)>>20+1)
	}
	return size
}

// mac returns an address that is the same for every run of a machine.
func mac(m *backend.Machine) string {
	sum := sha256.Sum256([]byte(m.UID))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}
