package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

const (
	// takenFile is the file on the volume of a snapshot with its Taken. With it, the snapshot is complete and never changes.
	takenFile = "taken.json"
	// takeTimeout is how long a Take waits for the launcher of a machine that uses its disks.
	takeTimeout = time.Minute
	// maxTold limits what the launcher of a machine says.
	maxTold = 1 << 20
	// allocationUnit is the unit of the allocated size of a file.
	allocationUnit = 512
)

// errNoLauncher means that a machine uses its disks, and its launcher does not copy them.
var errNoLauncher = errors.New("the machine uses its disks, and its launcher does not answer: it is starting or ending. If it has been running for long, " +
	"an earlier version of Keelson has started it: restart it")

// run takes the snapshot. It does nothing but return the result if an earlier attempt has taken it.
func (t *Take) run(ctx context.Context, dirs Dirs) (*Taken, error) {
	lock, err := awaitLock(ctx, dirs.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("the volume of the snapshot: %w", err)
	}
	defer lock.Close()
	raw, err := os.ReadFile(filepath.Join(dirs.Snapshot, takenFile))
	if err == nil {
		var taken Taken
		return &taken, json.Unmarshal(raw, &taken)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	taken, err := t.copy(ctx, dirs)
	if isFull(err) {
		err = fmt.Errorf("the volume of the snapshot is full: %w", err)
	}
	if err != nil {
		return nil, err
	}
	step("disks copied")
	if err := taken.finish(dirs.Snapshot); err != nil {
		return nil, err
	}
	step("snapshot taken")
	return taken, nil
}

// awaitLock locks a volume, and waits for a Take that was deleted by force and has not ended.
func awaitLock(ctx context.Context, dir string) (lock *os.File, err error) {
	err = retry(ctx, takeTimeout, func() error {
		lock, err = tryLock(dir, syscall.LOCK_EX)
		return err
	}, errLocked)
	return lock, err
}

// copy copies the disks: their files if the machine is off or asleep, and otherwise by its launcher.
func (t *Take) copy(ctx context.Context, dirs Dirs) (taken *Taken, err error) {
	if len(t.Disks) == 0 {
		return nil, errors.New("the machine has no disks")
	}
	err = retry(ctx, takeTimeout, func() error {
		locks, err := t.lock(dirs)
		if err == nil {
			defer closeAll(locks)
			if err = checkRestored(dirs, t.Disks); err == nil {
				taken, err = t.copyFiles(ctx, dirs)
			}
			return err
		}
		if !errors.Is(err, errLocked) {
			return err
		}
		taken, err = t.copyRunning(ctx, dirs)
		return err
	}, errNoLauncher)
	return taken, err
}

// lock locks the volumes of the disks, for reading.
func (t *Take) lock(dirs Dirs) (locks []*os.File, err error) {
	for _, disk := range t.Disks {
		lock, err := tryLock(filepath.Dir(dirs.diskPath(disk)), syscall.LOCK_SH)
		if err != nil {
			closeAll(locks)
			return nil, fmt.Errorf("the %s disk: %w", disk, err)
		}
		locks = append(locks, lock)
	}
	return locks, nil
}

// copyFiles copies the files of disks that nobody writes.
func (t *Take) copyFiles(ctx context.Context, dirs Dirs) (*Taken, error) {
	taken := &Taken{At: time.Now().UTC()}
	for _, disk := range t.Disks {
		from := dirs.diskPath(disk)
		size, err := virtualSize(from)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the %s disk was not made yet: start the machine", disk)
		}
		if err != nil {
			return nil, err
		}
		file, err := newSnapshotFile(dirs, SnapshotFile(disk))
		if err != nil {
			return nil, err
		}
		err = errors.Join(file.Close(), diskbackup.CopySparse(ctx, from, file.Name(), func(int64) {}))
		if err != nil {
			return nil, fmt.Errorf("copy the %s disk: %w", disk, err)
		}
		step("disk copied")
		taken.Disks = append(taken.Disks, Disk{Name: disk, Bytes: size})
	}
	if t.Memory {
		var err error
		if taken.Memory, err = copyMemory(ctx, dirs); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// newSnapshotFile returns an empty file on the volume of a snapshot, instead of that of an attempt that was not complete.
func newSnapshotFile(dirs Dirs, name string) (*os.File, error) {
	path := filepath.Join(dirs.Snapshot, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// copyRunning has the launcher of the machine, which runs, copy the disks.
func (t *Take) copyRunning(ctx context.Context, dirs Dirs) (*Taken, error) {
	path := filepath.Join(filepath.Dir(dirs.diskPath(t.Disks[0])), takeSocket)
	dialed, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errNoLauncher, err)
	}
	conn := dialed.(*net.UnixConn) //nolint:forcetypeassert // it is one
	defer conn.Close()             //nolint:errcheck // it has ended
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	told := json.NewDecoder(io.LimitReader(conn, maxTold))
	offer, err := hear(told)
	if err != nil {
		return nil, err
	}
	step("disks offered")
	taken := &Taken{}
	var files []*os.File
	defer func() { closeAll(files) }()
	for _, disk := range offer.Disks {
		if !slices.Contains(t.Disks, disk.Name) {
			return nil, fmt.Errorf("the machine runs with another disk, %s; the next attempt has it", disk.Name)
		}
		file, err := newOverlay(ctx, dirs, disk)
		if err != nil {
			return nil, fmt.Errorf("make the copy of the %s disk: %w", disk.Name, err)
		}
		files, taken.Disks = append(files, file), append(taken.Disks, disk.Disk)
	}
	if t.Memory {
		file, err := newSnapshotFile(dirs, savedmemory.File)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if err := sendFiles(conn, files); err != nil {
		return nil, fmt.Errorf("hand the files of the copies over: %w", err)
	}
	step("files sent")
	copied, err := hear(told)
	if err != nil {
		return nil, err
	}
	if copied.At == nil || t.Memory != (copied.Memory != nil) {
		return nil, errors.New("the launcher of the machine does not say what it has copied")
	}
	taken.At, taken.Quiesced, taken.Memory = *copied.At, copied.Quiesced, copied.Memory
	return taken, nil
}

// hear returns the next message of the launcher.
func hear(told *json.Decoder) (message takeMessage, err error) {
	if err := told.Decode(&message); err != nil {
		return message, fmt.Errorf("the machine has ended meanwhile: %w", err)
	}
	switch message.Error {
	case "":
		return message, nil
	case errNoGuest.Error():
		return message, errNoLauncher
	}
	return message, fmt.Errorf("its launcher says: %s", message.Error)
}

// newOverlay returns an empty disk for the copy of a disk of a running machine.
func newOverlay(ctx context.Context, dirs Dirs, disk liveDisk) (*os.File, error) {
	file, err := newSnapshotFile(dirs, SnapshotFile(disk.Name))
	if err != nil {
		return nil, err
	}
	args := []string{"create", "-q", "-f", "qcow2"}
	if disk.Base != "" {
		args = append(args, "-u", "-b", disk.Base, "-F", disk.Format) // the image is not here
	}
	if err := qemuImg(ctx, append(args, file.Name(), strconv.FormatInt(disk.Bytes, 10))...); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// finish makes the copies durable, measures them, and then says so on the volume.
func (t *Taken) finish(dir string) error {
	names := []string{}
	for _, disk := range t.Disks {
		names = append(names, SnapshotFile(disk.Name))
	}
	if t.Memory != nil {
		names = append(names, savedmemory.File)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := atomicfile.SyncFile(path); err != nil {
			return err
		}
		var info syscall.Stat_t
		if err := syscall.Stat(path, &info); err != nil {
			return err
		}
		t.AllocatedBytes += info.Blocks * allocationUnit
	}
	if err := atomicfile.SyncDir(dir); err != nil {
		return err
	}
	step("copies durable")
	return atomicfile.WriteJSON(filepath.Join(dir, takenFile), t, atomicfile.Durable)
}
