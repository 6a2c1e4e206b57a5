package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// beginRead begins to make a machine of the snapshot, or to restore one from it. The snapshot is not deleted until the function that
// it returns is called.
func (d *Driver) beginRead(uid types.UID) (*machineSnapshot, func(), error) {
	s := d.findSnapshot(uid)
	if s == nil {
		return nil, nil, fmt.Errorf("the snapshot %s is not on this host", uid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.def.Taken || s.deleting {
		return nil, nil, fmt.Errorf("the snapshot %s is not taken yet, or is being deleted", s.id.Name)
	}
	if path := s.def.missing(s.dir); path != "" {
		return nil, nil, fmt.Errorf("the file %s of the snapshot %s is missing: restore it, or use another snapshot", path, s.id.Name)
	}
	s.readers++
	return s, func() {
		s.mu.Lock()
		s.readers--
		s.mu.Unlock()
		s.notify()
	}, nil
}

// fork gives a new machine copies of the disks of a snapshot, and its memory, if there is one. It returns the image of the root disk
// and the snapshot. It changes what the machine boots to what the machine of the snapshot booted.
func (m *machine) fork(ctx context.Context, machine *backend.Machine) (*qemu.Image, *snapshotDefinition, error) {
	s, end, err := m.d.beginRead(machine.Snapshot)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	m.files.Lock()
	defer m.files.Unlock()
	def := s.definition()
	machine.Image = def.Image
	if machine.Image == nil && machine.Firmware == v1alpha1.FirmwareUEFI {
		return nil, nil, &backend.FieldError{Field: "spec.firmware", Message: "the snapshot is of a machine with the default guest, which boots without UEFI; remove the field"}
	}
	root := def.disk(v1alpha1.RootDiskName)
	m.mu.Lock()
	m.def.Image = def.Image
	err = m.def.write(m.dir)
	m.mu.Unlock()
	if err != nil {
		return nil, nil, fmt.Errorf("create machine: %w", err)
	}
	for _, disk := range machine.Disks {
		from := def.disk(disk.Name)
		if from == nil || disk.Image != nil || disk.VirtualDisk != "" {
			continue
		}
		if err := m.forkDisk(ctx, s, from, disk); err != nil {
			return nil, nil, &diskError{disk.Name, err}
		}
	}
	if def.Memory != nil {
		savedmemory.Remove(m.dir)
		if err := os.Link(s.memoryPath(), m.path(savedmemory.File)); err != nil {
			return nil, nil, fmt.Errorf("use the memory in the snapshot %s: %w", s.id.Name, err)
		}
		step("memory linked for a fork")
	}
	if root == nil {
		return nil, &def, nil
	}
	if err := m.copyFrom(ctx, s, root, m.path(diskFile), rootDiskField, machine.DiskBytes); err != nil {
		return nil, nil, err
	}
	m.rootCreated()
	return root.Base, &def, nil
}

// forkDisk records a disk of spec.disks, and copies its content from a snapshot. m.files is held.
func (m *machine) forkDisk(ctx context.Context, s *machineSnapshot, from *snapshotDisk, disk backend.Disk) error {
	record := diskRecord{Disk: disk, Base: from.Base}
	if before, found := m.diskRecord(disk.Name); found && before.Created {
		return nil
	}
	if err := m.recordDisk(record); err != nil {
		return err
	}
	if err := m.copyFrom(ctx, s, from, m.path(diskPath(disk.Name)), "spec.disks[].size", disk.SizeBytes); err != nil {
		return err
	}
	record.Created = true
	return m.recordDisk(record)
}

// copyFrom copies a disk of a snapshot to a file of the machine, unless that is done, and grows the copy to size. field is the field
// of the size.
func (m *machine) copyFrom(ctx context.Context, s *machineSnapshot, from *snapshotDisk, to, field string, size int64) error {
	if size != 0 && size < from.SizeBytes {
		return fmt.Errorf("the disk %s of the snapshot %s has %d bytes, more than %s with %d: make it larger", from.Name, s.id.Name, from.SizeBytes, field, size)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := m.d.copyDisk(ctx, s.path(from.Name), to, func(percent int64) {
		m.progress(fmt.Sprintf("the disk %s of the snapshot is being copied: %d %%", from.Name, percent))
	})
	if err != nil {
		return fmt.Errorf("copy the disk %s of the snapshot %s: %w", from.Name, s.id.Name, err)
	}
	step("disk of a snapshot copied")
	if err := giveFile(to, m.user()); err != nil {
		return fmt.Errorf("change the owner of the disk to the user of the machine: %w", err)
	}
	return m.d.growFile(ctx, to, m.user(), size)
}
