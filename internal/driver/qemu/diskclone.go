package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// copyChunk is the number of bytes that a copy of a disk makes between two looks at its context.
const copyChunk = 64 << 20

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
	case !v.def.Created || v.def.Removing || v.deleting || v.work != nil:
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
	if err := copySparse(ctx, from, part, progress); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	step("disk copied")
	if err := os.Rename(part, to); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// copySparse copies a file into an empty one, without its holes, durably. progress is called in quarters.
func copySparse(ctx context.Context, from, to string, progress func(percent int64)) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer target.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if err := target.Truncate(size); err != nil {
		return err
	}
	reported := int64(0)
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return &fs.PathError{Op: "seek", Path: from, Err: err}
		}
		end, err := unix.Seek(int(source.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return &fs.PathError{Op: "seek", Path: from, Err: err}
		}
		at = min(end, begin+copyChunk)
		if err := copyRange(source, target, begin, at-begin); err != nil {
			return err
		}
		if done := at * 100 / size / 25 * 25; done > reported {
			reported = done
			progress(done)
		}
	}
	return errors.Join(target.Sync(), target.Close())
}

// copyRange copies a part of a file to the same place of another one. Between files, io.CopyN lets the kernel do it.
func copyRange(source, target *os.File, at, length int64) error {
	if _, err := source.Seek(at, io.SeekStart); err != nil {
		return err
	}
	if _, err := target.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(target, source, length)
	return err
}
