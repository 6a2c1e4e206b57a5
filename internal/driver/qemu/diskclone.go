package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
)

// beginRead begins a clone of the disk, which must not change meanwhile.
func (v *virtualDisk) beginRead() error {
	owner := v.definition().Owner
	if owner != nil && v.d.isGone(owner.UID) {
		if err := v.release(owner.UID); err != nil {
			return err
		}
		owner = nil
	}
	v.mu.Lock()
	// A start of the owner that begins now waits for the clone; one that has begun holds the disk until the machine is on.
	v.readers++
	if v.readers == 1 {
		v.idle = make(chan struct{})
	}
	var err error
	switch {
	case !v.def.Created || v.def.Removing || v.deleting || v.work.Busy():
		err = fmt.Errorf("%w: the VirtualDisk %s is being created, grown or deleted", backend.ErrSourceNotReady, v.id.Name)
	case v.holds > 0:
		err = fmt.Errorf("%w: the machine that has the VirtualDisk %s is being started; stop it, or remove the disk from it", backend.ErrSourceInUse, v.id.Name)
	}
	owner = v.def.Owner
	v.mu.Unlock()
	if err == nil && owner != nil && v.d.isOwnerOn(owner) {
		err = fmt.Errorf("%w: the running machine %s has the VirtualDisk %s; stop it, or remove the disk from it", backend.ErrSourceInUse, owner.Name, v.id.Name)
	}
	if err != nil {
		v.endRead()
	}
	return err
}

// endRead ends a clone of the disk.
func (v *virtualDisk) endRead() {
	v.mu.Lock()
	v.readers--
	last := v.readers == 0
	if last {
		close(v.idle)
	}
	v.mu.Unlock()
	if last {
		v.d.notifyDisk(v)
	}
}

// clone creates the file as a copy of that of source. It copies what is allocated, byte by byte, so that no program reads
// what a tenant has written, and the copy has the same image.
func (v *virtualDisk) clone(ctx context.Context, source *virtualDisk) error {
	def, from := v.definition(), source.definition()
	usage, err := measureDisk(source.path())
	if err != nil {
		return fmt.Errorf("read the disk %s: %w", source.id.Name, err)
	}
	if def.SizeBytes != 0 && def.SizeBytes < usage.VirtualBytes {
		return fmt.Errorf("the VirtualDisk %s has %d bytes, more than %s with %d: make it larger", source.id.Name, usage.VirtualBytes, virtualDiskSizeField, def.SizeBytes)
	}
	err = v.d.copyDisk(ctx, source.path(), v.path(), func(percent int64) {
		v.progress(fmt.Sprintf("the disk %s is being copied: %d %%", source.id.Name, percent))
	})
	if err != nil {
		return fmt.Errorf("copy the disk %s: %w", source.id.Name, err)
	}
	if def.SizeBytes > usage.VirtualBytes {
		if err := v.d.growFile(ctx, v.path(), v.d.keeper(), def.SizeBytes); err != nil {
			return err
		}
	}
	return v.complete(from.Base)
}

// copyDisk copies the file of a disk that nobody writes to a new file, durably. The file is complete when it has its name.
func (d *Driver) copyDisk(ctx context.Context, from, to string, progress func(percent int64)) error {
	part := to + ".new"
	if err := newFile(part, d.keeper()); err != nil {
		return err
	}
	if err := diskbackup.CopySparse(ctx, from, part, progress); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	step("disk copied")
	return atomicfile.Place(part, to)
}
