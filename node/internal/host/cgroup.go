package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// cgroupRoot is where cgroups are: version 2 itself, or a folder for each hierarchy of version 1.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupTimeout is how long the kernel may take to let killed processes go.
const cgroupTimeout = 5 * time.Second

// removeCgroups removes a cgroup, and those below it, from all hierarchies. Its processes have just been killed, and the
// kernel lets them go in its own time, so it is tried for a while, or until the context ends.
func removeCgroups(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cgroupTimeout)
	defer cancel()
	paths, err := filepath.Glob(filepath.Join(cgroupRoot, "*", name))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range append(paths, filepath.Join(cgroupRoot, name)) {
		errs = append(errs, removeTreeUntil(ctx, path))
	}
	return errors.Join(errs...)
}

// removeTreeUntil tries to remove a cgroup until it is gone or the context ends.
func removeTreeUntil(ctx context.Context, path string) error {
	for {
		err := removeTree(path)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// removeTree removes a cgroup and those below it. The files in it are the kernel's and go with it.
func removeTree(root string) error {
	var folders []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
