package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// fewBytes is what may have changed on the disks since they were copied, so that the machine is halted to copy that.
const fewBytes = 16 << 20

// saveHalted halts the machine, copies what has changed on its disks since they were copied, writes its memory to a file, and lets it go on.
// at is the moment of both.
func (l *launcher) saveHalted(ctx context.Context, monitor *qmp.Client, disks []diskbackup.Disk, file *os.File) (saved *savedmemory.Memory, at time.Time, err error) {
	nothing := func(int64) {}
	if err := diskbackup.CopyUntilFew(ctx, monitor, disks, fewBytes, nothing); err != nil {
		return nil, at, err
	}
	saved = &savedmemory.Memory{CPU: l.processors, Shape: l.shape}
	if saved.QEMU, err = version(monitor); err != nil {
		return nil, at, err
	}
	// The manager neither pauses nor resumes it meanwhile, and the power button waits.
	l.changing.Lock()
	defer l.changing.Unlock()
	l.halting.Store(true)
	defer l.halting.Store(false)
	wasRunning, err := savedmemory.Halt(context.WithoutCancel(ctx), monitor)
	at = time.Now().UTC()
	saved.At = at
	step("halted for a snapshot")
	if err == nil {
		err = diskbackup.CopyChanged(ctx, monitor, disks, nothing)
	}
	if err == nil {
		err = diskbackup.End(ctx, monitor) // QEMU does not let the disks go before
	}
	if err == nil {
		err = saved.WriteTo(ctx, monitor, file, func(int64) error { return nil })
	}
	step("memory in the snapshot")
	if err != nil {
		savedmemory.Cancel(context.WithoutCancel(ctx), monitor)
	}
	if err == nil || wasRunning { // QEMU takes the disks back with cont only
		err = errors.Join(err, command(monitor, "cont", nil))
	}
	if !wasRunning {
		err = errors.Join(err, command(monitor, "stop", nil))
	}
	_, _ = fmt.Fprintf(l.messages, "The machine was halted for %v for a snapshot\n", time.Since(at).Round(time.Millisecond)) // a message only
	step("gone on after a snapshot")
	return saved, at, err
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
