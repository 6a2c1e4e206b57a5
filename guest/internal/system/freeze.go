package system

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// freezeLimit is how long file systems stay frozen if nobody thaws them: programs that
// write wait meanwhile.
const freezeLimit = time.Minute

// The requests FIFREEZE and FITHAW of linux/fs.h.
const (
	freeze = 0xc0045877
	thaw   = 0xc0045878
)

// Freezer freezes the file systems on disks: what was written to them is on the disks,
// and nothing else is until they are thawed. The zero value is ready to use.
type Freezer struct {
	mu     sync.Mutex
	frozen []*os.File
	limit  *time.Timer
}

// Freeze freezes all file systems and returns their number. If one cannot be frozen,
// none is.
func (f *Freezer) Freeze() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.frozen) > 0 {
		return 0, errors.New("the file systems are frozen already")
	}
	for _, target := range diskMounts("/proc/mounts") {
		root, err := os.Open(target)
		if err == nil {
			if err = ioctl(root, freeze, 0); err != nil {
				_ = root.Close() // nothing was written
			}
		}
		switch {
		case err == nil:
			f.frozen = append(f.frozen, root)
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EOPNOTSUPP):
			// It is mounted twice and frozen already, or is of a kind that cannot be frozen.
		default:
			_, thawErr := f.thaw()
			return 0, errors.Join(fmt.Errorf("freeze %s: %w", target, err), thawErr)
		}
	}
	if len(f.frozen) > 0 {
		f.limit = time.AfterFunc(freezeLimit, func() { _, _ = f.Thaw() }) // nobody is there to be told
	}
	return len(f.frozen), nil
}

// Thaw thaws the file systems and returns their number.
func (f *Freezer) Thaw() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw()
}

// IsFrozen reports whether file systems are frozen.
func (f *Freezer) IsFrozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.frozen) > 0
}

// thaw thaws the last one first; f.mu is held.
func (f *Freezer) thaw() (int, error) {
	if f.limit != nil {
		f.limit.Stop()
	}
	n := len(f.frozen)
	var errs []error
	for _, root := range slices.Backward(f.frozen) {
		errs = append(errs, ioctl(root, thaw, 0), root.Close())
	}
	f.frozen = nil
	return n, errors.Join(errs...)
}
