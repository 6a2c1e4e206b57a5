package launcher

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/keelson-dev/keelson/internal/driver/display"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// The sockets in the run directory.
const (
	monitorSocket = "qmp.sock"
	agentSocket   = "agent.sock"
	agentChardev  = "agent"
	consoleSocket = "console.sock"
)

const (
	seedFile = "seed.img"
	// rootDisk is the name of the root disk. No other disk may have it.
	rootDisk = "root"
	// outputFD is the descriptor of QEMU for the log of the serial console.
	outputFD = 3
	// agentChannel is the name of the agent's channel in the guest.
	agentChannel = "org.qemu.guest_agent.0"
	// The addresses of the machine in the network of its QEMU.
	guestNetwork, guestAddress = "10.0.2.0/24", "10.0.2.15"
)

// arguments returns the command line of QEMU. guest is the default guest; nil boots the disk.
func (l *launcher) arguments(guest *guestimage.Guest) []string {
	d := &l.definition
	socket := func(id, name string) string {
		return fmt.Sprintf("socket,id=%s,path=%s,server=on,wait=off", id, filepath.Join(l.dirs.Run, name))
	}
	accelerator := "kvm"
	if !d.KVM {
		accelerator = fmt.Sprintf("tcg,thread=%s,tb-size=%d", guestboot.Threads(l.version, d.CPUs), d.CodeMiB*d.CPUs)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-name", "guest=" + escape(d.Namespace+"/"+d.Name) + ",debug-threads=on",
		"-uuid", d.UID,
		"-machine", "q35,usb=off,smbus=off,vmport=off",
		"-accel", accelerator, "-cpu", l.cpuModel(),
		"-smp", fmt.Sprintf("cpus=%d", d.CPUs), "-m", fmt.Sprintf("size=%dk", d.MemoryBytes>>10),
		"-rtc", "base=utc,driftfix=slew", "-msg", "timestamp=on", "-boot", "strict=on",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		// QEMU waits until the launcher reads the events of the guest, and again when the guest has ended, so that the cause is known.
		"-S", "-action", "shutdown=pause,panic=pause,reboot=reset",
		"-chardev", socket("qmp", monitorSocket), "-mon", "chardev=qmp,mode=control",
		"-add-fd", fmt.Sprintf("fd=%[1]d,set=%[1]d", outputFD),
		"-chardev", socket("console", consoleSocket) + fmt.Sprintf(",logfile=/dev/fdset/%d,logappend=on", outputFD),
		"-device", "isa-serial,chardev=console",
		"-device", "virtio-serial-pci,id=serial",
		"-chardev", socket(agentChardev, agentSocket),
		"-device", "virtserialport,id=agent-port,chardev=" + agentChardev + ",name=" + agentChannel,
		"-device", "virtio-balloon-pci,id=balloon,deflate-on-oom=on",
		"-device", "virtio-rng-pci,rng=rng", "-object", "rng-random,id=rng,filename=/dev/urandom",
		"-device", "pvpanic",
		"-netdev", l.network(), "-device", "virtio-net-pci,netdev=net,romfile=",
	}
	if d.Display {
		args = append(args, display.Arguments()...)
	}
	for _, disk := range d.AllDisks() {
		if disk.Name == rootDisk {
			args = append(args, drive(disk.Name, l.diskPath(disk), "qcow2", l.base, "bootindex=1")...)
		} else {
			args = append(args, drive(disk.Name, l.diskPath(disk), "qcow2", nil, "")...)
		}
	}
	args = append(args, drive("seed", filepath.Join(l.dirs.Run, seedFile), "raw", nil, "")...)
	if guest != nil {
		args = append(args, "-kernel", guest.Kernel, "-initrd", guest.Initramfs, "-append", guest.Cmdline)
	}
	if l.memory != nil {
		args = append(args, "-incoming", "defer")
	}
	return args
}

// cpuModel returns the model of the processors.
func (l *launcher) cpuModel() string {
	if l.definition.CPUModel == "" && l.definition.KVM {
		return "host"
	}
	return cmp.Or(l.definition.CPUModel, "max") // which does not depend on the node, because they are emulated
}

// processors identifies the processors for saved memory.
func (l *launcher) processors() string {
	return savedmemory.Processors(l.cpuModel(), l.definition.KVM)
}

// network returns the network of the machine: its ports are those of the Pod.
func (l *launcher) network() string {
	words := []string{"user,id=net,ipv6=off,net=" + guestNetwork + ",dhcpstart=" + guestAddress}
	for _, domain := range l.searchDomains {
		words = append(words, "dnssearch="+escape(domain))
	}
	for _, port := range l.definition.Ports {
		words = append(words, "hostfwd="+forwarding(port))
	}
	return strings.Join(words, ",")
}

// forwarding returns the rule of QEMU's network for a port of the Pod, which is that of the guest.
func forwarding(port Port) string { return fmt.Sprintf("%s-:%d", listening(port), port.Port) }

// listening returns the part of a rule that names it.
func listening(port Port) string {
	protocol, number, _ := strings.Cut(port.String(), "/")
	return protocol + "::" + number
}

// diskNode returns the name of the block node of a disk. It begins with a letter, as QEMU demands.
func diskNode(name string) string { return "disk-" + name }

// drive returns the arguments for a disk. Its name is the serial number. base is its backing file. Names of other files in the headers of images are not used.
func drive(name, path, format string, base *image, device string) []string {
	readOnly := format == "raw"
	file := map[string]any{"driver": "file", "filename": path}
	id := diskNode(name)
	node := map[string]any{"driver": format, "node-name": id, "read-only": readOnly, "file": file}
	if !readOnly {
		file["discard"], node["discard"], node["backing"] = "unmap", "unmap", nil
	}
	if base != nil {
		node["backing"] = base.node()
	}
	words := "virtio-blk-pci,drive=" + id + ",serial=" + name
	if device != "" {
		words += "," + device
	}
	return []string{"-blockdev", encode(node), "-device", words}
}

func encode(node map[string]any) string {
	raw, err := json.Marshal(node)
	if err != nil {
		panic(err) // a node always marshals
	}
	return string(raw)
}

// escape doubles commas, as the syntax of QEMU's options requires.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
