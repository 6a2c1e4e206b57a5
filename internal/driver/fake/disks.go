package fake

import (
	"context"
	"fmt"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// WatchDisks implements backend.DiskStore. Disks are complete at once.
func (d *Driver) WatchDisks(func(backend.DiskIdentity)) {}

// ObserveDisk implements backend.DiskStore. The first server that names a disk has it.
func (d *Driver) ObserveDisk(_ context.Context, id backend.DiskIdentity) (backend.DiskState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk, found := d.stored[id.UID]
	if !found {
		return backend.DiskState{}, fmt.Errorf("disk %s: %w", id.Name, backend.ErrNotFound)
	}
	return backend.DiskState{Created: true, SizeBytes: disk.SizeBytes, AllocatedBytes: disk.SizeBytes / 10, AttachedTo: d.userOf(id)}, nil
}

// userOf returns a server that names a disk; d.mu is held.
func (d *Driver) userOf(id backend.DiskIdentity) *backend.Identity {
	for _, s := range d.servers {
		for _, disk := range s.machine.Disks {
			if disk.VirtualDisk == id.Name && s.machine.Namespace == id.Namespace {
				return &s.machine.Identity
			}
		}
	}
	return nil
}

// EnsureDisk implements backend.DiskStore. It stores nothing.
func (d *Driver) EnsureDisk(_ context.Context, disk backend.VirtualDisk) error {
	if disk.Image != nil && disk.Image.Path != "" {
		return &backend.FieldError{Field: "spec.image.path", Message: "the driver fake has no files"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored[disk.UID] = disk
	return nil
}

// DeleteDisk implements backend.DiskStore.
func (d *Driver) DeleteDisk(_ context.Context, id backend.DiskIdentity, _ bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if user := d.userOf(id); user != nil {
		return fmt.Errorf("%w: the machine %s has it", backend.ErrDiskInUse, user.Name)
	}
	delete(d.stored, id.UID)
	return nil
}

// Disks implements backend.DiskStore.
func (d *Driver) Disks(context.Context) ([]backend.StoredDisk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []backend.StoredDisk
	for _, disk := range d.stored {
		all = append(all, backend.StoredDisk{Namespace: disk.Namespace, Name: disk.Name, AllocatedBytes: disk.SizeBytes / 10, VirtualBytes: disk.SizeBytes})
	}
	return all, nil
}
