package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
)

// diskBus is the PCI bridge of the disks of spec.disks, which can be plugged and unplugged by ACPI: the root bus of q35
// cannot. It has room for 31 devices. A pcie-root-port for each disk would delay the boot, see docs/internals/drivers.md.
const diskBus = "disks"

// The names of a disk in QEMU: its device and block node, the node of its file, and those of its image. Names of nodes have
// at most 31 bytes.
func diskNode(name string) string     { return "d-" + name }
func diskFileNode(name string) string { return "df-" + name }
func baseNode(name string) string     { return "db-" + name }
func baseFileNode(name string) string { return "dbf-" + name }

// plugged is what QEMU has of disks.
type plugged struct {
	// devices are the names of devices.
	devices []string
	// sizes are the virtual sizes of block nodes, by name.
	sizes map[string]int64
	// sets are the sets of descriptors, by the name of the node that they are for.
	sets map[string][]int64
	// tracked are the block nodes whose changes are recorded for a snapshot, and changed is the number of bytes that have changed.
	tracked []string
	changed int64
}

// queryDisks returns what QEMU has. The truth about hot-plugged devices is in QEMU, not in the definition of a machine: a
// manager may be killed between a command and the record of its result.
func queryDisks(ctx context.Context, conn *qmp.Client) (*plugged, error) {
	p := &plugged{sizes: map[string]int64{}, sets: map[string][]int64{}}
	var devices []struct{ Name string }
	if err := conn.Run(ctx, "qom-list", map[string]any{"path": "/machine/peripheral"}, &devices); err != nil {
		return nil, err
	}
	for _, device := range devices {
		p.devices = append(p.devices, device.Name)
	}
	var nodes []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		}
		Bitmaps []struct {
			Name  string
			Count int64
		} `json:"dirty-bitmaps"`
	}
	if err := conn.Run(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	for _, node := range nodes {
		p.sizes[node.Name] = node.Image.Size
		for _, bitmap := range node.Bitmaps {
			if bitmap.Name == changedBitmap {
				p.tracked, p.changed = append(p.tracked, node.Name), p.changed+bitmap.Count
			}
		}
	}
	var sets []struct {
		ID  int64 `json:"fdset-id"`
		FDs []struct{ Opaque string }
	}
	if err := conn.Run(ctx, "query-fdsets", nil, &sets); err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, fd := range set.FDs {
			p.sets[fd.Opaque] = append(p.sets[fd.Opaque], set.ID)
		}
	}
	return p, nil
}

// plugDisk plugs a disk whose file is complete, as far as QEMU does not have it.
func (m *machine) plugDisk(ctx context.Context, conn *qmp.Client, p *plugged, name string) error {
	device := diskNode(name)
	if slices.Contains(p.devices, device) {
		return nil
	}
	record, _ := m.diskRecord(name)
	if !m.ownsDisk(&record) {
		return errors.New("the machine does not have the VirtualDisk") // it has just claimed it
	}
	disk := map[string]any{"driver": formatQcow2, "node-name": device, "discard": "unmap", "file": diskFileNode(name), "backing": nil}
	if record.Base != nil {
		base := baseBlockdev(record.Base, baseNode(name), baseFileNode(name))
		disk["backing"] = baseNode(name)
		if err := handOver(ctx, conn, p, record.Base.Path, baseFileNode(name), true); err != nil {
			return err
		}
		if err := addNode(ctx, conn, p, base); err != nil {
			return err
		}
	}
	if err := handOver(ctx, conn, p, m.recordPath(&record), diskFileNode(name), false); err != nil {
		return err
	}
	if err := addNode(ctx, conn, p, disk); err != nil {
		return err
	}
	step("disk known to QEMU")
	if err := conn.Run(ctx, "device_add", diskDevice(name), nil); err != nil {
		return err
	}
	step("disk plugged")
	return nil
}

// diskDevice returns the device of a disk. The legacy interface of virtio would need ports of the bridge.
func diskDevice(name string) map[string]any {
	return map[string]any{
		"driver": "virtio-blk-pci", "id": diskNode(name), "bus": diskBus, "drive": diskNode(name), "serial": name, "disable-legacy": "on",
	}
}

// handOver gives QEMU, which opens no file by name, a descriptor of a file as a block node.
func handOver(ctx context.Context, conn *qmp.Client, p *plugged, path, node string, readOnly bool) error {
	if _, found := p.sizes[node]; found {
		return nil
	}
	if err := removeSets(ctx, conn, p, node); err != nil { // left behind by a manager that was killed here
		return err
	}
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	file, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var set struct {
		ID int64 `json:"fdset-id"`
	}
	if err := conn.RunWithFile(ctx, "add-fd", map[string]any{"opaque": node}, file, &set); err != nil {
		return err
	}
	step("disk handed over")
	if err := addNode(ctx, conn, p, fileBlockdev(fmt.Sprintf("/dev/fdset/%d", set.ID), node, readOnly)); err != nil {
		return errors.Join(err, conn.Run(ctx, "remove-fd", map[string]any{"fdset-id": set.ID}, nil))
	}
	return nil
}

func addNode(ctx context.Context, conn *qmp.Client, p *plugged, node map[string]any) error {
	if _, found := p.sizes[node["node-name"].(string)]; found {
		return nil
	}
	return conn.Run(ctx, "blockdev-add", node, nil)
}

func removeSets(ctx context.Context, conn *qmp.Client, p *plugged, node string) error {
	for _, set := range p.sets[node] {
		if err := conn.Run(ctx, "remove-fd", map[string]any{"fdset-id": set}, nil); err != nil {
			return err
		}
	}
	return nil
}

// unplugDisk removes a disk from QEMU. It returns false while the guest has not released it.
func unplugDisk(ctx context.Context, conn *qmp.Client, p *plugged, name string) (bool, error) {
	if device := diskNode(name); slices.Contains(p.devices, device) {
		err := conn.Run(ctx, "device_del", map[string]any{"id": device}, nil)
		step("unplug of a disk requested")
		// A repeated request fails while QEMU waits for the guest.
		if err != nil && !strings.Contains(err.Error(), "already in the process of unplug") {
			return false, err
		}
		return false, nil
	}
	for _, node := range []string{diskNode(name), diskFileNode(name), baseNode(name), baseFileNode(name)} {
		if _, found := p.sizes[node]; found {
			if err := conn.Run(ctx, "blockdev-del", map[string]any{"node-name": node}, nil); err != nil {
				return false, err
			}
		}
		if err := removeSets(ctx, conn, p, node); err != nil {
			return false, err
		}
		delete(p.sizes, node)
		delete(p.sets, node)
	}
	step("disk released by QEMU")
	return true, nil
}

// growPlugged grows a disk that QEMU has to size.
func growPlugged(ctx context.Context, conn *qmp.Client, p *plugged, name string, size int64) error {
	now, found := p.sizes[diskNode(name)]
	if !found || size <= now {
		return nil
	}
	return conn.Run(ctx, "block_resize", map[string]any{"node-name": diskNode(name), "size": size}, nil)
}
