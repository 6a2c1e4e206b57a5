package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const lockFile = "lock"

// lockTimeout is how long Open waits for a lock whose holder is dying or dead. The kernel takes a moment to end a
// manager that was killed, and takes away its files late; one that was killed while it forked leaves the lock to its
// child until that one has called exec.
const lockTimeout = 5 * time.Second

// acquireLock locks dir for this process and writes its pid into the lock file. The kernel drops the lock when the
// file is closed or the process ends, however it ends: the file itself means nothing and stays. patience is for a
// lock whose holder is ending.
func acquireLock(dir string, timeout time.Duration) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		holder := lockHolder(f)
		if errors.Is(err, syscall.EWOULDBLOCK) && holder != os.Getpid() && IsEnding(holder) && time.Now().Before(deadline) {
			continue
		}
		_ = f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Dir: dir, PID: holder}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	writeHolder(f, os.Getpid())
	return f, nil
}

// writeHolder writes the pid of the lock holder, 0 for none. The pid has a fixed width, so that it can be written on a full
// disk too, and not being able to write it must not keep anybody from stopping what runs.
func writeHolder(f *os.File, pid int) {
	_, _ = f.WriteAt([]byte(fmt.Sprintf("%-10d\n", pid)), 0)
}

// IsEnding reports whether a process is ending or has ended: it was killed, or has begun to exit. Until it has ended it may
// still hold its locks, files and ports. On systems that do not show this, a process counts as ending when it has ended.
//
// Whether it has ended is asked last: a process can end while isDying looks, which then sees nothing.
func IsEnding(pid int) bool { return isDying(pid) || !pidAlive(pid) }

// IsGone reports whether a process has ended and released its locks and files. A zombie is gone: some init processes of
// containers do not reap. A process is not gone when only its first thread has exited, as during an exit: the others may
// hold its files for a moment.
func IsGone(pid int) bool { return !pidAlive(pid) }

// Holder returns the pid of the process that holds a directory, 0 if none does or the directory does not exist. That
// process may be ending; see IsEnding. It looks and takes nothing: an Open at the same moment succeeds, because the pid
// in the file is then not that of a live process, and for such a lock it waits.
func Holder(dir string) (int, error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open lock: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		switch {
		case err == nil:
			return 0, syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		case errors.Is(err, syscall.EWOULDBLOCK):
			return lockHolder(f), nil
		case !errors.Is(err, syscall.EINTR):
			return 0, fmt.Errorf("look at lock %s: %w", f.Name(), err)
		}
	}
}

// releaseLock unlocks explicitly: a program that was forked at this moment and has not called exec yet has the file
// open, too, and closing ours would not release the lock before it does.
func releaseLock(f *os.File) error {
	writeHolder(f, 0)
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return errors.Join(err, f.Close())
}

// lockHolder returns the pid in the lock file, or 0.
func lockHolder(f *os.File) int {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0) // a short file gives io.EOF with what there is
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}
