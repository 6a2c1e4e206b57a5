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

// lockTimeout limits the wait of Open for a lock whose holder is dying or dead. The kernel needs a moment to end a
// killed manager and closes its files late; if it was killed during a fork, the child holds the lock until it calls
// exec.
const lockTimeout = 5 * time.Second

// acquireLock locks dir for this process and writes its pid into the lock file. The kernel releases the lock when
// the file is closed or the process ends; the file itself has no meaning and stays. timeout limits the wait for a
// holder that is ending.
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

// writeHolder writes the pid of the lock holder, 0 for none. The pid has a fixed width, so that it can be overwritten on a
// full disk. A failure is ignored, so that processes can still be stopped.
func writeHolder(f *os.File, pid int) {
	_, _ = f.WriteAt([]byte(fmt.Sprintf("%-10d\n", pid)), 0)
}

// IsEnding reports whether a process is ending or has ended: it was killed, or has begun to exit. Until it has ended it may
// still hold its locks, files and ports. On systems that do not show this, a process counts as ending when it has ended.
//
// It checks last whether the process has ended, because it can end during isDying, which then finds nothing.
func IsEnding(pid int) bool { return isDying(pid) || !pidAlive(pid) }

// IsGone reports whether a process has ended and released its locks and files. A zombie is gone: some init processes of
// containers do not reap. A process is not gone when only its first thread has exited, as during an exit: the others may
// hold its files for a moment.
func IsGone(pid int) bool { return !pidAlive(pid) }

// Holder returns the pid of the process that holds a directory, 0 if none does or the directory does not exist. That
// process may be ending; see IsEnding. It does not make a concurrent Open fail: the pid in the file is then not one of
// a live process, and Open waits for such a lock.
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
			return 0, fmt.Errorf("check lock %s: %w", f.Name(), err)
		}
	}
}

// releaseLock unlocks explicitly: a child that was just forked has the file open, too, so closing ours would not
// release the lock until the child calls exec.
func releaseLock(f *os.File) error {
	writeHolder(f, 0)
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return errors.Join(err, f.Close())
}

// lockHolder returns the pid in the lock file, or 0.
func lockHolder(f *os.File) int {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0) // a short file returns its content and io.EOF
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}
