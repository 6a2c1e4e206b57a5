package fakeqemu

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fdset is a set with one descriptor.
type fdset struct {
	id     int64
	opaque string
	file   *os.File
}

const fdsetPrefix = "/dev/fdset/"

func (m *machine) addFD(a map[string]any, file *passed) (any, error) {
	taken, err := file.take()
	if err != nil {
		return nil, err
	}
	set := fdset{file: taken}
	set.opaque, _ = a["opaque"].(string)
	for slices.ContainsFunc(m.sets, func(other fdset) bool { return other.id == set.id }) {
		set.id++
	}
	m.sets = append(m.sets, set)
	return map[string]any{"fdset-id": set.id, "fd": taken.Fd()}, nil
}

func (m *machine) removeFD(a map[string]any, _ *passed) (any, error) {
	id := int64(a["fdset-id"].(float64))
	i := slices.IndexFunc(m.sets, func(set fdset) bool { return set.id == id })
	if i < 0 {
		return nil, generic("File descriptor named 'fdset-id:%d' not found", id)
	}
	// A node has a duplicate.
	_ = m.sets[i].file.Close()
	m.sets = slices.Delete(m.sets, i, i+1)
	return nil, nil
}

func (m *machine) queryFDSets(map[string]any, *passed) (any, error) {
	all := []any{}
	for _, set := range m.sets {
		fd := map[string]any{"fd": set.file.Fd()}
		if set.opaque != "" {
			fd["opaque"] = set.opaque
		}
		all = append(all, map[string]any{"fdset-id": set.id, "fds": []any{fd}})
	}
	return all, nil
}

// open opens a file by name, or duplicates that of a set.
func (m *machine) open(path string, readOnly bool) (*os.File, error) {
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	text, isSet := strings.CutPrefix(path, fdsetPrefix)
	if !isSet {
		return os.OpenFile(path, flags, 0)
	}
	id, err := strconv.ParseInt(text, 10, 64)
	for _, set := range m.sets {
		if set.id != id || err != nil {
			continue
		}
		fd, err := unix.FcntlInt(set.file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), path), nil //nolint:gosec // a descriptor
	}
	return nil, generic("Could not dup FD for %s flags %x: No such file or directory", path, flags)
}

// node is a block node. Below one of a format is that of its file.
type node struct {
	name, driver  string
	file          *os.File
	below, backed string
	size          int64
	readOnly      bool
	tracked       bool
	changed       int64
}

func (m *machine) node(name string) *node {
	for _, n := range m.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// keys are the arguments of the drivers of nodes.
var keys = map[string]string{
	"file":  "driver:string node-name?:string read-only?:boolean discard?:string filename:string",
	"raw":   "driver:string node-name?:string read-only?:boolean discard?:string file:any",
	"qcow2": "driver:string node-name?:string read-only?:boolean discard?:string file:any backing?:any",
}

// addNode adds a block node.
func (m *machine) addNode(a map[string]any) (*node, error) {
	driver, _ := a["driver"].(string)
	known, found := keys[driver]
	if !found {
		return nil, generic("Parameter 'driver' does not accept value '%s'", driver)
	}
	if err := check(known, a); err != nil {
		return nil, err
	}
	n := &node{driver: driver}
	n.name, _ = a["node-name"].(string)
	n.readOnly, _ = a["read-only"].(bool)
	if m.node(n.name) != nil {
		return nil, generic("Duplicate nodes with node-name='%s'", n.name)
	}
	if n.name == "" {
		n.name = fmt.Sprintf("#block%03d", len(m.nodes))
	}
	var err error
	if driver == "file" {
		if n.file, err = m.open(a["filename"].(string), n.readOnly); err == nil {
			n.size, err = n.file.Seek(0, io.SeekEnd)
		}
	} else {
		err = m.addBelow(n, a)
	}
	if err != nil {
		return nil, err
	}
	m.nodes = append(m.nodes, n)
	return n, nil
}

// addBelow finds or adds what is below a node.
func (m *machine) addBelow(n *node, a map[string]any) error {
	for key, to := range map[string]*string{"file": &n.below, "backing": &n.backed} {
		switch below := a[key].(type) {
		case string:
			if m.node(below) == nil {
				return generic("Cannot find device='%[1]s' nor node-name='%[1]s'", below)
			}
			*to = below
		case map[string]any:
			added, err := m.addNode(below)
			if err != nil {
				return err
			}
			*to = added.name
		}
	}
	file := m.node(n.below)
	if file == nil {
		return generic("A block device must be specified for \"file\"")
	}
	n.file, n.size = file.file, file.size
	if n.driver == "qcow2" {
		var err error
		n.size, err = virtualSize(file.file)
		return err
	}
	return nil
}

// qcow2Magic begins a file of the format qcow2.
const qcow2Magic = "QFI\xfb"

// virtualSize reads the size of a disk from the header of its file.
func virtualSize(file *os.File) (int64, error) {
	header := make([]byte, 32)
	if _, err := file.ReadAt(header, 0); err != nil || string(header[:4]) != qcow2Magic {
		return 0, generic("Image is not in qcow2 format")
	}
	return int64(binary.BigEndian.Uint64(header[24:])), nil //nolint:gosec // a size
}

func (m *machine) queryNodes(map[string]any, *passed) (any, error) {
	all := []any{}
	for _, n := range m.nodes {
		one := map[string]any{"node-name": n.name, "drv": n.driver, "ro": n.readOnly, "image": map[string]any{"virtual-size": n.size, "format": n.driver}}
		if n.tracked {
			one["dirty-bitmaps"] = []any{map[string]any{"name": bitmap, "count": n.changed, "recording": true}}
		}
		all = append(all, one)
	}
	return all, nil
}

func (m *machine) delNode(a map[string]any, _ *passed) (any, error) {
	name := a["node-name"].(string)
	i := slices.IndexFunc(m.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil, generic("Failed to find node with node-name='%s'", name)
	}
	isUser := func(n *node) bool { return n.below == name || n.backed == name }
	isDrive := func(d *device) bool { return d.options["drive"] == name }
	isJob := func(j *job) bool { return j.status != "concluded" && (j.device == name || j.target == name) }
	if slices.ContainsFunc(m.nodes, isUser) || slices.ContainsFunc(m.devices, isDrive) || slices.ContainsFunc(m.jobs, isJob) {
		return nil, generic("Block device %s is in use", name)
	}
	if m.nodes[i].driver == "file" {
		_ = m.nodes[i].file.Close() // what was written is there
	}
	m.nodes = slices.Delete(m.nodes, i, i+1)
	return nil, nil
}

// opened returns what names the file of a node to a tool, whose first descriptor it is. The names in the header of the image do not count.
func (n *node) opened() string {
	const file = `{"driver":"file","filename":"/proc/self/fd/3","locking":"off"}`
	return fmt.Sprintf(`json:{"driver":%q,"file":%s,"backing":null}`, n.driver, file)
}

// tool runs a tool on the file of a node.
func (n *node) tool(program string, words ...string) error {
	cmd := exec.Command(program, words...)
	cmd.ExtraFiles = []*os.File{n.file}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", program, words, err, out)
	}
	return nil
}

func (m *machine) resize(a map[string]any, _ *passed) (any, error) {
	name, _ := a["node-name"].(string)
	n := m.node(name)
	if n == nil {
		return nil, generic("Cannot find device='' nor node-name='%s'", name)
	}
	size := int64(a["size"].(float64))
	if err := n.tool("qemu-img", "resize", "-q", n.opened(), strconv.FormatInt(size, 10)); err != nil {
		return nil, err
	}
	n.size = size
	return nil, nil
}

// guestIO writes to the disk of a device, as its guest would do.
func (m *machine) guestIO(path, words string) string {
	path = strings.TrimSuffix(path, "/virtio-backend")
	d := m.find(path)
	if d == nil {
		d = m.find(named + "/" + path)
	}
	if d == nil || m.node(d.options["drive"]) == nil {
		return fmt.Sprintf("Error: Device '%s/virtio-backend' not found\r\n", path)
	}
	n := m.node(d.options["drive"])
	if err := n.tool("qemu-io", "-c", words, n.opened()); err != nil {
		return err.Error()
	}
	if strings.HasPrefix(words, "write") {
		n.changed += 256 << 10
	}
	return ""
}
