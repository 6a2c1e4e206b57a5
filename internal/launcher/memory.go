package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/guestimage"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// memoryRecord is the file on the volume of the root disk that describes the saved memory. The machine is asleep as long as it is
	// there: it is written when the memory is complete, and removed before the guest goes on, so that no memory is used twice.
	memoryRecord = "memory.json"
	// maxMemoryRecord limits it.
	maxMemoryRecord = 64 << 10
)

// savedMemory is the record.
type savedMemory struct {
	savedmemory.Memory

	// Epoch is that of the machine that was saved.
	Epoch string `json:"epoch,omitempty"`
	// GuestOf is the machine that the guest takes itself for, and that Shape is of; nil if it knows that it is this one.
	GuestOf *Identity `json:"guestOf,omitempty"`
}

// step is called at each point where a crash makes a difference. Tests replace it.
var step = func(string) {}

// serveSleep puts the machine to sleep for the manager. The response comes when it is asleep, or cannot sleep.
func (l *launcher) serveSleep(w http.ResponseWriter, _ *http.Request) {
	o := l.guest()
	if o == nil {
		http.Error(w, owner.ErrNotOn.Error(), http.StatusServiceUnavailable)
		return
	}
	if err := l.sleep(o); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// sleep saves the memory of the machine, which ends then. If it fails, the machine is as it was.
func (l *launcher) sleep(o *owner.Owner) error {
	if !l.definition.CanSleep() {
		return errors.New("the machine has no root disk whose volume it keeps, and its memory would be in; set spec.action to active or stopped")
	}
	err := o.Sleep(context.Background(), l.saver(func(ctx context.Context, conn *qmp.Client, memory *savedmemory.Memory) error { // each step has a timeout
		return memory.Write(ctx, conn, l.dirs.Disk, func(int64) error { return nil })
	}))
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the volume of the root disk has no room for the memory of the machine, which runs on: increase spec.resource.rootDisk "+
			"by spec.resource.memory and restart the machine, if its StorageClass can expand volumes; or set spec.action to active or stopped: %w", err)
	case err != nil:
		return fmt.Errorf("save the memory of the machine: %w", err)
	}
	return nil
}

// saver returns how the memory of the machine is saved by write.
func (l *launcher) saver(write func(context.Context, *qmp.Client, *savedmemory.Memory) error) owner.Saver {
	return owner.Saver{
		Describe: func(ctx context.Context, conn *qmp.Client) (memory *savedmemory.Memory, err error) {
			memory = &savedmemory.Memory{CPU: l.processors, Shape: l.shape}
			if l.memory != nil && l.owner.Load().Record().Owed.Name {
				memory.Shape = l.memory.Shape
			}
			ctx, cancel := context.WithTimeout(ctx, savedmemory.Timeout)
			defer cancel()
			memory.QEMU, err = savedmemory.Version(ctx, conn)
			return memory, err
		},
		Write: write,
		Disks: func() ([]string, error) { return l.diskPaths(), nil },
	}
}

// save makes a record durable, as far as the next launcher has to know it: whether the machine is asleep.
func (l *launcher) save(record owner.Record) error {
	if record.Phase != owner.Asleep {
		return voidMemory(l.dirs.Disk)
	}
	saved := savedMemory{Memory: *record.Memory, Epoch: l.definition.Epoch}
	if record.Owed.Name {
		saved.GuestOf = l.memory.GuestOf
	}
	err := atomicfile.WriteJSON(filepath.Join(l.dirs.Disk, memoryRecord), saved, atomicfile.Durable)
	if err != nil && voidMemory(l.dirs.Disk) != nil {
		return nil // what the next launcher would read counts
	}
	return err
}

// discardMemory removes the saved memory in a folder, durably: the record first, without which it is never used.
func discardMemory(dir string) error {
	if err := voidMemory(dir); err != nil {
		return err
	}
	savedmemory.Remove(dir)
	return nil
}

// voidMemory removes the record of the saved memory in a folder, durably.
func voidMemory(dir string) error {
	err := os.Remove(filepath.Join(dir, memoryRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncDir(dir)
}

// diskPaths returns the files that the guest writes to.
func (l *launcher) diskPaths() (paths []string) {
	for _, disk := range l.definition.AllDisks() {
		paths = append(paths, l.diskPath(disk))
	}
	return paths
}

// shapeOf returns a digest of the devices of the machine, if it had an identity. What is outside of them, such as ports, is not part of it.
func (l *launcher) shapeOf(guest *guestimage.Guest, id Identity) string {
	c := l.config(guest)
	c.Name, c.UUID = id.Namespace+"/"+id.Name, id.UID
	words := []string{c.Shape()} // which is that of a machine with any disks
	for _, disk := range c.Disks {
		words = append(words, disk.Name)
	}
	return strings.Join(words, " ")
}

// findMemory finds the saved memory that the machine goes on with, if there is one. The error is a savedmemory.UnusableError if the
// machine was asleep, and its memory does not fit it; then it has no memory any more.
func (l *launcher) findMemory(guest *guestimage.Guest) error {
	if !l.definition.CanSleep() {
		return nil
	}
	saved, err := l.readMemory(guest)
	if err == nil && saved != nil {
		l.memory = saved
		return nil
	}
	if err == nil || savedmemory.IsUnusable(err) {
		err = errors.Join(err, discardMemory(l.dirs.Disk)) // or what is left of an attempt
	}
	return err
}

// readMemory returns the saved memory that the machine goes on with; nil if there is none.
func (l *launcher) readMemory(guest *guestimage.Guest) (*savedMemory, error) {
	path := filepath.Join(l.dirs.Disk, memoryRecord)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.definition.Asleep:
		return nil, savedmemory.Unusable("the volume of the root disk does not have it")
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxMemoryRecord:
		return nil, savedmemory.Unusable("its file %s is damaged", memoryRecord)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var saved savedMemory
	if json.Unmarshal(raw, &saved) != nil {
		return nil, savedmemory.Unusable("its file %s is damaged", memoryRecord)
	}
	if saved.Epoch != l.definition.Epoch {
		return nil, nil
	}
	shape := l.shape
	if saved.GuestOf != nil {
		shape = l.shapeOf(guest, *saved.GuestOf)
	}
	if err := saved.Check("", l.processors, shape); err != nil {
		return nil, err
	}
	return &saved, saved.CheckFiles(l.dirs.Disk, l.diskPaths())
}

// copyMemory copies the saved memory of a machine that is asleep.
func copyMemory(ctx context.Context, dirs Dirs) (*savedmemory.Memory, error) {
	raw, err := os.ReadFile(filepath.Join(dirs.Disk, memoryRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the machine is not asleep, so it has no memory: start it, or create a VirtualMachineSnapshot without memory")
	}
	var saved savedMemory
	if err == nil {
		err = json.Unmarshal(raw, &saved)
	}
	if err != nil {
		return nil, fmt.Errorf("read the saved memory: %w", err)
	}
	if saved.GuestOf != nil {
		return nil, savedmemory.ErrUnnamed
	}
	file, err := newSnapshotFile(dirs, savedmemory.File)
	if err != nil {
		return nil, err
	}
	err = errors.Join(file.Close(), diskbackup.CopySparse(ctx, filepath.Join(dirs.Disk, savedmemory.File), file.Name(), func(int64) {}))
	if err != nil {
		return nil, fmt.Errorf("copy the saved memory: %w", err)
	}
	step("memory copied")
	saved.Files = nil // they are of the machine
	return &saved.Memory, nil
}
