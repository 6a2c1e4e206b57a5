package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// lockFile is the file on the volume of a disk that the machine has locked.
	lockFile = "lock"
	// lockTimeout is how long a machine waits for an earlier run. It is more than the usual grace period of a Pod.
	lockTimeout = 90 * time.Second
	// lockInterval is the interval of attempts.
	lockInterval = 100 * time.Millisecond
)

// errLocked means that a volume is in use.
var errLocked = errors.New("it is in use")

// tryLock locks the volume in a folder; how is LOCK_EX, or LOCK_SH for one who only reads. The lock ends with the file. The error is
// errLocked if another one has a lock.
func tryLock(dir string, how int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock its volume: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(errLocked, file.Close())
		}
		return nil, errors.Join(fmt.Errorf("lock its volume: %w", err), file.Close())
	}
}

// lockVolume locks the volume of a disk, and waits for an earlier run of the machine. There is one if somebody has deleted its Pod
// by force: then the API server no longer has the Pod, so that the next one starts, but its containers have not ended yet. QEMU inherits
// the lock, so that it also lasts until QEMU has ended.
func (l *launcher) lockVolume(ctx context.Context, dir string) error {
	told := false
	err := retry(ctx, lockTimeout, func() error {
		file, err := tryLock(dir, syscall.LOCK_EX)
		if err == nil {
			l.locks = append(l.locks, file)
		}
		if errors.Is(err, errLocked) && !told {
			told = true
			_, _ = fmt.Fprintln(l.messages, "An earlier run of this machine uses its disks, or a snapshot of them is being taken. Waiting for its end.") // a message only
		}
		return err
	}, errLocked)
	if errors.Is(err, errLocked) {
		return errors.New("an earlier run of this machine, which has not ended, or a snapshot that is being taken, uses it")
	}
	return err
}

// retry repeats what fails because of a reason, until that takes too long.
func retry(ctx context.Context, timeout time.Duration, do func() error, reason error) error {
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for begun := time.Now(); ; {
		err := do()
		if !errors.Is(err, reason) || time.Since(begun) > timeout {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
