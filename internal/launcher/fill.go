package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// Fill makes the disks of a new machine from those of a snapshot, or replaces those of a machine that is off or asleep.
type Fill struct {
	// Disks are all disks of the machine, the root disk first. Their volumes are locked meanwhile.
	Disks []Disk `json:"disks"`
	// From are the names of those that the snapshot has.
	From []string `json:"from"`
	// Token identifies a restore, which is done once; empty for a new machine.
	Token string `json:"token,omitempty"`
	// Memory describes the memory in the snapshot that the machine of this epoch goes on with; nil if it boots.
	Memory *savedmemory.Memory `json:"memory,omitempty"`
	Epoch  string              `json:"epoch,omitempty"`
	// Of is the machine in the snapshot, which the guest of a new machine takes itself for; nil for a restore.
	Of *Identity `json:"of,omitempty"`
}

// filler is a fill that is in progress.
type filler struct {
	*launcher
	fill *Fill
}

// run does a fill. A new machine has all disks afterwards, or some of them, which the next attempt completes. Of another machine,
// either all of From are replaced or none. The disks are grown when the machine starts.
func (fill *Fill) run(ctx context.Context, dirs Dirs, messages io.Writer) error {
	f := &filler{launcher: &launcher{dirs: dirs, messages: messages}, fill: fill}
	defer func() { closeAll(f.locks) }()
	for _, disk := range fill.Disks {
		if err := f.lockVolume(ctx, filepath.Dir(f.diskPath(disk))); err != nil {
			return fmt.Errorf("the %s disk: %w", disk.Name, err)
		}
	}
	if fill.Token != "" {
		return f.restore(ctx)
	}
	for _, disk := range f.copied() {
		if _, err := os.Lstat(f.diskPath(disk)); err == nil {
			continue // an earlier attempt has made it
		}
		part := f.diskPath(disk) + partSuffix
		if err := f.copy(ctx, disk, part, disk.Bytes); err != nil {
			return err
		}
		if err := atomicfile.Place(part, f.diskPath(disk)); err != nil {
			return err
		}
		step("disk filled")
	}
	return f.forkMemory(ctx)
}

// copied returns the disks that the snapshot has, too.
func (f *filler) copied() []Disk {
	return slices.DeleteFunc(slices.Clone(f.fill.Disks), func(disk Disk) bool { return !slices.Contains(f.fill.From, disk.Name) })
}

// copy copies a disk of the snapshot, durably, for one of a size in bytes; 0 means any.
func (f *filler) copy(ctx context.Context, disk Disk, to string, bytes int64) error {
	from := filepath.Join(f.dirs.Snapshot, SnapshotFile(disk.Name))
	size, err := virtualSize(from)
	if err != nil {
		return fmt.Errorf("the %s disk of the snapshot: %w", disk.Name, err)
	}
	if bytes > 0 && size > bytes {
		return fmt.Errorf("the disk %s of the snapshot has %d bytes, more than %s with %d: make it larger", disk.Name, size, sizeField(disk.Name), bytes)
	}
	err = diskbackup.CopySparse(ctx, from, to, func(percent int64) {
		_, _ = fmt.Fprintf(f.messages, "The disk %s of the snapshot is being copied: %d %%\n", disk.Name, percent) // a message only
	})
	if err != nil {
		return errors.Join(f.explain(disk, err), os.Remove(to))
	}
	step("disk copied")
	return nil
}

// explain says why a disk was not copied.
func (f *filler) explain(disk Disk, err error) error {
	switch {
	case !isFull(err):
		return fmt.Errorf("copy the disk %s of the snapshot: %w", disk.Name, err)
	case f.fill.Token == "":
		return fmt.Errorf("the volume of the %s disk has no room for that of the snapshot: %w", disk.Name, err)
	}
	return fmt.Errorf("the volume of the %s disk has no room for that of the snapshot beside the present one, which it replaces: set a larger %s, if its "+
		"StorageClass can expand volumes, or make a new machine of the snapshot: %w", disk.Name, sizeField(disk.Name), err)
}

// sizeField returns the field with the size of a disk.
func sizeField(disk string) string {
	if disk == qemu.RootDisk {
		return "spec.resource.rootDisk"
	}
	return "spec.disks[].size"
}

const (
	// restoreFile is the file on the volume of the first disk of a machine that describes its last restore.
	restoreFile = "restore.json"
	// maxRestoring limits it.
	maxRestoring = 64 << 10
	// restoreSuffix is the suffix of the copy of a disk of a snapshot, beside the disk that it replaces.
	restoreSuffix = ".restore"
)

// restoring is the last restore of a machine.
type restoring struct {
	// Token identifies the request; for a new machine with memory, it is its epoch.
	Token string `json:"token"`
	// Disks are the names of the disks, if it is decided: the copies are complete, and each replaces the disk of its name. That is written
	// before the first of them does, so that a guest never sees some disks of the snapshot and some of before. Without any, it is done.
	Disks []string `json:"disks,omitempty"`
	// Memory is the memory that the machine goes on with, whose copy is complete, too; nil if it boots.
	Memory *savedMemory `json:"memory,omitempty"`
}

// restore replaces the disks of a machine by those of a snapshot. Until it writes the decision, it changes nothing.
func (f *filler) restore(ctx context.Context) error {
	if len(f.copied()) == 0 {
		return errors.New("the machine has none of the disks in the snapshot any more")
	}
	if err := f.finishRestore(f.fill.Disks); err != nil {
		return err
	}
	record := filepath.Join(filepath.Dir(f.diskPath(f.fill.Disks[0])), restoreFile)
	if last, err := readRestoring(record); err != nil || last.Token == f.fill.Token {
		return err
	}
	decided := &restoring{Token: f.fill.Token}
	for _, disk := range f.copied() {
		present, err := virtualSize(f.diskPath(disk))
		if err != nil {
			present = disk.Bytes // it is damaged, or the machine was not started with it yet
		}
		if err := f.copy(ctx, disk, f.diskPath(disk)+restoreSuffix, present); err != nil {
			f.removeCopies(f.fill.Disks)
			return err
		}
		decided.Disks = append(decided.Disks, disk.Name)
	}
	if f.fill.Memory != nil {
		if err := f.copyMemory(ctx); err != nil {
			f.removeCopies(f.fill.Disks)
			return err
		}
		decided.Memory = &savedMemory{Memory: *f.fill.Memory, Epoch: f.fill.Epoch}
	}
	if err := atomicfile.WriteJSON(record, decided, atomicfile.Durable); err != nil {
		return fmt.Errorf("record the restore: %w", err)
	}
	step("restore decided")
	return f.finishRestore(f.fill.Disks)
}

// copyMemory copies the memory in the snapshot, durably.
func (f *filler) copyMemory(ctx context.Context) error {
	to := filepath.Join(f.dirs.Disk, savedmemory.File+restoreSuffix)
	if err := diskbackup.CopySparse(ctx, filepath.Join(f.dirs.Snapshot, savedmemory.File), to, func(int64) {}); err != nil {
		return f.explain(Disk{Name: qemu.RootDisk}, err)
	}
	step("memory copied")
	return nil
}

// finishRestore puts the disks of a decided restore in place, if there is one, and removes what is left of others. disks are those of the
// machine, whose volumes are locked. Nothing else may use the disks before.
func (l *launcher) finishRestore(disks []Disk) error {
	for _, first := range disks {
		path := filepath.Join(filepath.Dir(l.diskPath(first)), restoreFile)
		decided, err := readRestoring(path)
		if err != nil {
			return err
		}
		if len(decided.Disks) == 0 {
			continue
		}
		// The saved memory belongs to the disks before. Its file may be that of the snapshot already.
		if err := voidMemory(l.dirs.Disk); err != nil {
			return err
		}
		for _, disk := range disks { // one that was removed from the machine is gone
			if slices.Contains(decided.Disks, disk.Name) {
				if err := atomicfile.Place(l.diskPath(disk)+restoreSuffix, l.diskPath(disk)); err != nil {
					return fmt.Errorf("put the disk %s of the snapshot in place: %w", disk.Name, err)
				}
				step("disk restored")
			}
		}
		if err := l.restoreMemory(disks, decided.Memory); err != nil {
			return err
		}
		decided.Disks, decided.Memory = nil, nil
		if err := atomicfile.WriteJSON(path, decided, atomicfile.Durable); err != nil {
			return fmt.Errorf("record the restore: %w", err)
		}
		step("restore done")
	}
	l.removeCopies(disks)
	return nil
}

// restoreMemory makes the machine one that is asleep with the memory in a snapshot, after its disks are in place; without any, it has no
// memory.
func (l *launcher) restoreMemory(disks []Disk, saved *savedMemory) error {
	if saved == nil {
		savedmemory.Remove(l.dirs.Disk)
		return nil
	}
	memory := filepath.Join(l.dirs.Disk, savedmemory.File)
	err := atomicfile.Place(memory+restoreSuffix, memory)
	var paths []string
	for _, disk := range disks {
		paths = append(paths, l.diskPath(disk))
	}
	if err == nil {
		saved.Files, err = savedmemory.Stamp(l.dirs.Disk, paths)
	}
	if err == nil {
		err = atomicfile.WriteJSON(filepath.Join(l.dirs.Disk, memoryRecord), saved, atomicfile.Durable)
	}
	if err != nil {
		return fmt.Errorf("put the memory of the snapshot in place: %w", err)
	}
	step("memory restored")
	return nil
}

// readRestoring returns the last restore of a machine; an empty one if there was none.
func readRestoring(path string) (*restoring, error) {
	var last restoring
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &last, nil
	}
	if err != nil {
		return nil, err
	}
	err = json.NewDecoder(io.LimitReader(file, maxRestoring)).Decode(&last)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("the file %s on the volume of a disk is damaged: %w", restoreFile, err)
	}
	return &last, nil
}

// checkRestored fails if the disks of a machine, whose volumes are locked, are those of before a restore and of the snapshot.
func checkRestored(dirs Dirs, disks []string) error {
	for _, disk := range disks {
		decided, err := readRestoring(filepath.Join(filepath.Dir(dirs.diskPath(disk)), restoreFile))
		if err != nil {
			return err
		}
		if len(decided.Disks) > 0 {
			return errors.New("a restore of the machine was interrupted, which is completed when the machine starts: start it, or wait for the restore")
		}
	}
	return nil
}

// removeCopies removes the copies of a restore that is not decided. What remains is removed by the next launcher.
func (l *launcher) removeCopies(disks []Disk) {
	for _, disk := range disks {
		_ = os.Remove(l.diskPath(disk) + restoreSuffix)
	}
	_ = os.Remove(filepath.Join(l.dirs.Disk, savedmemory.File+restoreSuffix))
}
