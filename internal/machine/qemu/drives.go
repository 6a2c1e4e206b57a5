package qemu

import (
	"encoding/json"
	"fmt"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
)

// RootDisk is the name of the root disk. No other disk may have it.
const RootDisk = "root"

// diskBus is the PCI bridge of the disks, which can be plugged and unplugged by ACPI: the root bus of q35 cannot. It has room for 31
// devices. A pcie-root-port for each disk would delay the boot, see docs/internals/drivers.md.
const diskBus = "disks"

// DiskNode returns the name of the device and of the block node of a disk. Names of nodes have at most 31 bytes, and begin with a letter.
func DiskNode(name string) string {
	if name == RootDisk {
		return RootDisk
	}
	return "d-" + name
}

// DiskFileNode returns the node of the file of a disk.
func DiskFileNode(name string) string {
	if name == RootDisk {
		return "root-file"
	}
	return "df-" + name
}

// BaseNode returns the node of the image below a disk.
func BaseNode(name string) string { return "db-" + name }

// BaseFileNode returns the node of the file of that.
func BaseFileNode(name string) string { return "dbf-" + name }

// DiskDevice returns the device of a disk. The legacy interface of virtio would need ports of the bridge.
func DiskDevice(name string) map[string]any {
	return map[string]any{
		"driver": "virtio-blk-pci", "id": DiskNode(name), "bus": diskBus, "drive": DiskNode(name), "serial": name, "disable-legacy": "on",
	}
}

// DiskBlockdev returns the block node of a disk, and that of its image; nil if it has none.
func DiskBlockdev(name string, base *Image) (disk, image map[string]any) {
	disk = map[string]any{"driver": diskimage.Qcow2, "node-name": DiskNode(name), "discard": "unmap", "file": DiskFileNode(name), "backing": nil}
	if base != nil {
		image = imageBlockdev(base, BaseNode(name), BaseFileNode(name))
		disk["backing"] = BaseNode(name)
	}
	return disk, image
}

// imageBlockdev returns the block node of an image, in the node file. It overrides the backing file that the image names; nil means none.
func imageBlockdev(image *Image, name, file string) map[string]any {
	node := map[string]any{"driver": image.Format, "node-name": name, "read-only": true, "file": file}
	if image.Format == diskimage.Qcow2 {
		node["backing"] = nil
	}
	return node
}

// nodes returns the arguments for the block nodes of a disk.
func nodes(name string, base *Image, file, baseFile int) (args []string) {
	disk, image := DiskBlockdev(name, base)
	if image != nil {
		args = append(handedOver(baseFile, BaseFileNode(name), true), "-blockdev", encode(image))
	}
	args = append(args, handedOver(file, DiskFileNode(name), false)...)
	return append(args, "-blockdev", encode(disk))
}

// rootDrives returns the arguments for the root disk and the seed.
func (c *Config) rootDrives(h handles) (args []string) {
	if c.Root != nil {
		args = append(nodes(RootDisk, c.Root.Base, h.root, h.base),
			"-device", "virtio-blk-pci,id=disk,drive="+DiskNode(RootDisk)+",serial="+RootDisk+",bootindex=1")
	}
	if c.Seed != "" {
		args = append(args, handedOver(h.seed, "seed-file", true)...)
		args = append(args,
			"-blockdev", encode(map[string]any{"driver": diskimage.Raw, "node-name": "seed", "read-only": true, "file": "seed-file"}),
			"-device", "virtio-blk-pci,drive=seed,serial=seed")
	}
	return args
}

// dataDrives returns the arguments for the other disks, and for the bus that more can be plugged into.
func (c *Config) dataDrives(h handles) []string {
	bus := "pci-bridge,chassis_nr=1,id=" + diskBus
	if c.BusSlot > 0 {
		bus += fmt.Sprintf(",addr=%x", c.BusSlot)
	}
	args := []string{"-device", bus}
	for i, disk := range c.Disks {
		args = append(args, nodes(disk.Name, disk.Base, h.disks[i], h.bases[i])...)
		args = append(args, "-device", encode(c.deviceAt(disk.Name)))
	}
	return args
}

// deviceAt returns the device of a disk, at the address that it had if its memory is loaded.
func (c *Config) deviceAt(name string) map[string]any {
	device := DiskDevice(name)
	if c.Saved == nil {
		return device
	}
	for _, disk := range c.Saved.Disks {
		if disk.Name == name {
			device["addr"] = disk.Address
		}
	}
	return device
}

// cdrom returns the arguments for the CD-ROM drive. It is on SATA, which installers support without drivers, and the firmware tries it
// after the root disk.
func (c *Config) cdrom(h handles) []string {
	if c.CDROM == nil {
		return nil
	}
	args := handedOver(h.cdrom, "cdrom-file", true)
	return append(args, "-blockdev", encode(imageBlockdev(c.CDROM, "cdrom", "cdrom-file")),
		"-device", "ide-cd,bus=ide.0,id=cdrom,drive=cdrom,bootindex=2")
}

// fdSet adds a descriptor to QEMU under FDSetPath. Unlike sandbox.FDPath, that also works for files that QEMU's user could not open.
func fdSet(fd int) string { return fmt.Sprintf("fd=%[1]d,set=%[1]d", fd) }

// FDSetPath is the path of the descriptor for QEMU.
func FDSetPath(fd int) string { return fmt.Sprintf("/dev/fdset/%d", fd) }

// handedOver returns the arguments that make a descriptor a block node.
func handedOver(fd int, name string, readOnly bool) []string {
	return []string{"-add-fd", fdSet(fd) + ",opaque=" + name, "-blockdev", encode(diskbackup.FileNode(FDSetPath(fd), name, readOnly))}
}

// encode returns the argument for a block node or a device.
func encode(node map[string]any) string {
	raw, err := json.Marshal(node)
	if err != nil {
		panic(err) // a node always marshals
	}
	return string(raw)
}
