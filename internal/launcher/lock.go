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
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for begun, told := time.Now(), false; ; {
		file, err := tryLock(dir, syscall.LOCK_EX)
		switch {
		case err == nil:
			l.locks = append(l.locks, file)
			return nil
		case !errors.Is(err, errLocked):
			return err
		case time.Since(begun) > lockTimeout:
			return errors.New("an earlier run of this machine, which has not ended, or a snapshot that is being taken, uses it")
		case !told:
			told = true
			_, _ = fmt.Fprintln(l.messages, "An earlier run of this machine uses its disks, or a snapshot of them is being taken. Waiting for its end.") // a message only
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
