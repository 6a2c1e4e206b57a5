package fakeqemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// switches are the flags without a value, and flags those with one.
var (
	switches = []string{"-nodefaults", "-no-user-config", "-S"}
	flags    = []string{
		"-display", "-name", "-uuid", "-machine", "-accel", "-cpu", "-smp", "-m", "-rtc", "-msg", "-boot", "-sandbox", "-action", "-chardev", "-mon",
		"-add-fd", "-device", "-object", "-netdev", "-blockdev", "-kernel", "-initrd", "-append", "-incoming", "-vnc",
	}
	processors = []string{"max", "host", "qemu64", "EPYC"}
)

// pciDevices are the devices with a slot, otherDevices those without.
var (
	pciDevices   = []string{"virtio-serial-pci", "virtio-balloon-pci", "virtio-rng-pci", "virtio-net-pci", "virtio-blk-pci", "virtio-tablet-pci", "VGA", "pci-bridge", "virtio-scsi-pci"}
	otherDevices = []string{"isa-serial", "virtserialport", "pvpanic", "pc-dimm", "scsi-cd", "ide-cd"}
)

// device is a device of the machine.
type device struct {
	id, driver string
	options    map[string]string
	slot       int
}

// chardev is a character device on a socket.
type chardev struct {
	id, path string
	fd       int
	log      *os.File
	open     bool // the guest, or the monitor, has it open
}

// parse reads a command line of QEMU.
func parse(args []string) (*machine, error) {
	m := newMachine()
	for len(args) > 0 {
		flag := args[0]
		args = args[1:]
		switch {
		case slices.Contains(switches, flag):
			m.halts = m.halts || flag == "-S"
			continue
		case !slices.Contains(flags, flag):
			return m, fmt.Errorf("%s: invalid option", flag)
		case len(args) == 0:
			return m, fmt.Errorf("%s: requires an argument", flag)
		}
		if err := m.set(flag, args[0]); err != nil {
			return m, fmt.Errorf("%s %s: %w", flag, args[0], err)
		}
		args = args[1:]
	}
	return m, nil
}

// set sets what a flag says.
func (m *machine) set(flag, value string) error {
	words := split(value)
	switch flag {
	case "-uuid":
		m.uuid = value
	case "-cpu":
		if !slices.Contains(processors, value) {
			return fmt.Errorf("unable to find CPU model '%s'", value)
		}
	case "-m":
		kib, err := strconv.ParseInt(strings.TrimSuffix(words["size"], "k"), 10, 64)
		m.memory = kib << 10
		m.balloon = m.memory
		return err
	case "-smp":
		m.cpus, _ = strconv.Atoi(words["cpus"])
	case "-chardev":
		return m.addChardev(words)
	case "-mon":
		m.monitors[words["chardev"]] = words["mode"]
	case "-add-fd":
		fd, err := strconv.Atoi(words["fd"])
		set, setErr := strconv.ParseInt(words["set"], 10, 64)
		m.sets = append(m.sets, fdset{set, words["opaque"], os.NewFile(uintptr(fd), value)}) //nolint:gosec // a descriptor
		return errors.Join(err, setErr)
	case "-blockdev":
		var node map[string]any
		if err := json.Unmarshal([]byte(value), &node); err != nil {
			return err
		}
		_, err := m.addNode(node)
		return err
	case "-device":
		if strings.HasPrefix(value, "{") {
			var options map[string]any
			if err := json.Unmarshal([]byte(value), &options); err != nil {
				return err
			}
			words = texts(options)
		}
		return m.addDevice(words)
	case "-netdev":
		m.links[words["id"]] = true
	case "-object":
		m.objects = append(m.objects, words["id"])
		m.shares = m.shares || words["share"] == "on"
	case "-kernel":
		m.guest.Agent = true
	case "-incoming":
		if value != "defer" {
			return errors.New("unknown migration protocol")
		}
		m.status = "inmigrate"
		m.incoming = true
	}
	return nil
}

// split splits the options of a flag. The first word may have no name; it is that of a driver.
func split(value string) map[string]string {
	words := map[string]string{}
	for i, word := range strings.Split(strings.ReplaceAll(value, ",,", "\x00"), ",") {
		name, text, found := strings.Cut(word, "=")
		if i == 0 && !found {
			name, text = "driver", name
		}
		words[name] = strings.ReplaceAll(text, "\x00", ",")
	}
	return words
}

func texts(options map[string]any) map[string]string {
	all := map[string]string{}
	for name, value := range options {
		all[name] = fmt.Sprint(value)
	}
	return all
}

func (m *machine) addChardev(words map[string]string) error {
	c := &chardev{id: words["id"], path: words["path"], fd: -1}
	if words["driver"] != "socket" || words["server"] != "on" || words["wait"] != "off" {
		return errors.New("the fake has sockets that listen only")
	}
	if text, found := words["fd"]; found {
		fd, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		c.fd = fd
	}
	if path, found := words["logfile"]; found {
		file, err := m.open(path, false)
		if err != nil {
			return err
		}
		c.log = file
	}
	m.chardevs = append(m.chardevs, c)
	return nil
}

// addDevice plugs a device.
func (m *machine) addDevice(options map[string]string) error {
	d := &device{id: options["id"], driver: options["driver"], options: options}
	isPCI := slices.Contains(pciDevices, d.driver)
	if !isPCI && !slices.Contains(otherDevices, d.driver) {
		return generic("'%s' is not a valid device model name", d.driver)
	}
	if d.id != "" && slices.ContainsFunc(m.devices, func(other *device) bool { return other.id == d.id }) {
		return generic("Duplicate device ID '%s'", d.id)
	}
	if node, found := options["drive"]; found {
		if m.node(node) == nil {
			return generic("Property '%s.drive' can't find value '%s'", d.driver, node)
		}
	}
	if isPCI {
		d.slot = m.freeSlot(options["bus"])
		if text, found := options["addr"]; found {
			slot, err := strconv.ParseInt(strings.TrimSuffix(text, ".0"), 16, 0)
			if err != nil {
				return err
			}
			d.slot = int(slot)
		}
	}
	m.devices = append(m.devices, d)
	return nil
}

// freeSlot returns the first free slot of a bus. The first one of all is that of the host.
func (m *machine) freeSlot(bus string) int {
	for slot := 1; ; slot++ {
		isTaken := func(d *device) bool { return d.slot == slot && d.options["bus"] == bus }
		if !slices.ContainsFunc(m.devices, isTaken) {
			return slot
		}
	}
}
