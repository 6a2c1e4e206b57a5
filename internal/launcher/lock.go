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

// lockVolume locks the volume of a disk, and waits for an earlier run of the machine. There is one if somebody has deleted its Pod
// by force: then the API server no longer has the Pod, so that the next one starts, but its containers have not ended yet. QEMU inherits
// the lock, so that it also lasts until QEMU has ended.
func (l *launcher) lockVolume(ctx context.Context, dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock its volume: %w", err)
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for begun, told := time.Now(), false; ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			l.locks = append(l.locks, file)
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return errors.Join(fmt.Errorf("lock its volume: %w", err), file.Close())
		case time.Since(begun) > lockTimeout:
			return errors.Join(errors.New("an earlier run of this machine, which has not ended, uses it"), file.Close())
		case !told:
			told = true
			_, _ = fmt.Fprintln(l.messages, "An earlier run of this machine uses its disks. Waiting for its end.") // a message only
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), file.Close())
		case <-ticker.C:
		}
	}
}
