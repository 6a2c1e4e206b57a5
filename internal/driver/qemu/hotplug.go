package qemu

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// plugged is what QEMU has of disks.
type plugged struct {
	*diskbackup.Nodes

	// devices are the names of devices.
	devices []string
}

// queryDisks returns what QEMU has. The truth about hot-plugged devices is in QEMU, not in the definition of a machine: a
// manager may be killed between a command and the record of its result.
func queryDisks(ctx context.Context, conn *qmp.Client) (*plugged, error) {
	p := &plugged{}
	var devices []struct{ Name string }
	if err := conn.Run(ctx, "qom-list", map[string]any{"path": "/machine/peripheral"}, &devices); err != nil {
		return nil, err
	}
	for _, device := range devices {
		p.devices = append(p.devices, device.Name)
	}
	var err error
	p.Nodes, err = diskbackup.Query(ctx, conn)
	return p, err
}

// plugDisk plugs a disk whose file is complete, as far as QEMU does not have it.
func (m *machine) plugDisk(ctx context.Context, conn *qmp.Client, p *plugged, name string) error {
	device := qemu.DiskNode(name)
	if slices.Contains(p.devices, device) {
		return nil
	}
	record, _ := m.diskRecord(name)
	if !m.ownsDisk(&record) {
		return errors.New("the machine does not have the VirtualDisk") // it has just claimed it
	}
	disk, base := qemu.DiskBlockdev(name, record.Base)
	if base != nil {
		if err := handOver(ctx, conn, p.Nodes, record.Base.Path, qemu.BaseFileNode(name), true); err != nil {
			return err
		}
		if err := p.Add(ctx, conn, base); err != nil {
			return err
		}
	}
	if err := handOver(ctx, conn, p.Nodes, m.recordPath(&record), qemu.DiskFileNode(name), false); err != nil {
		return err
	}
	if err := p.Add(ctx, conn, disk); err != nil {
		return err
	}
	step("disk known to QEMU")
	if err := conn.Run(ctx, "device_add", qemu.DiskDevice(name), nil); err != nil {
		return err
	}
	step("disk plugged")
	return nil
}

// handOver gives QEMU a file as a block node, unless it has the node.
func handOver(ctx context.Context, conn *qmp.Client, nodes *diskbackup.Nodes, path, node string, readOnly bool) error {
	if _, found := nodes.Sizes[node]; found {
		return nil
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
	return nodes.HandOver(ctx, conn, file, node, readOnly)
}

// unplugDisk removes a disk from QEMU. It returns false while the guest has not released it.
func unplugDisk(ctx context.Context, conn *qmp.Client, p *plugged, name string) (bool, error) {
	if device := qemu.DiskNode(name); slices.Contains(p.devices, device) {
		err := conn.Run(ctx, "device_del", map[string]any{"id": device}, nil)
		step("unplug of a disk requested")
		// A repeated request fails while QEMU waits for the guest.
		if err != nil && !strings.Contains(err.Error(), "already in the process of unplug") {
			return false, err
		}
		return false, nil
	}
	for _, node := range []string{qemu.DiskNode(name), qemu.DiskFileNode(name), qemu.BaseNode(name), qemu.BaseFileNode(name)} {
		if _, found := p.Sizes[node]; found {
			if err := conn.Run(ctx, "blockdev-del", map[string]any{"node-name": node}, nil); err != nil {
				return false, err
			}
		}
		if err := p.RemoveSets(ctx, conn, node); err != nil {
			return false, err
		}
		delete(p.Sizes, node)
		delete(p.Sets, node)
	}
	step("disk released by QEMU")
	return true, nil
}

// growPlugged grows a disk that QEMU has to size.
func growPlugged(ctx context.Context, conn *qmp.Client, p *plugged, name string, size int64) error {
	now, found := p.Sizes[qemu.DiskNode(name)]
	if !found || size <= now {
		return nil
	}
	return conn.Run(ctx, "block_resize", map[string]any{"node-name": qemu.DiskNode(name), "size": size}, nil)
}
