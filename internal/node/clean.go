package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	cgroupRoot = "/sys/fs/cgroup"

	// cleanTimeout is how long Clean waits for the last processes of a node to be gone. They have been killed, and the
	// kernel lets them go in its own time.
	cleanTimeout  = 10 * time.Second
	cleanInterval = 20 * time.Millisecond
)

// Clean removes what a node that was killed has left on the machine: its cgroup, in which Pods were. The kernel has taken
// all else away. A node that was told to end has left nothing, and then Clean does nothing. Dir is the node's directory,
// which may be gone; the node must not run any more.
func Clean(ctx context.Context, dir string) error {
	return clean(ctx, cgroupRoot, "keelson-"+id(dir), cleanTimeout)
}

// clean removes a cgroup of this name from all hierarchies below a root.
func clean(ctx context.Context, root, name string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(cleanInterval)
	defer ticker.Stop()
	for {
		err := removeCgroups(root, name)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove what the node has left: %w; a process may still be in it", err)
		case <-ticker.C:
		}
	}
}

// removeCgroups tries once to remove a cgroup, and those below it, from all hierarchies.
func removeCgroups(root, name string) error {
	paths, err := filepath.Glob(filepath.Join(root, "*", name))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range append(paths, filepath.Join(root, name)) {
		errs = append(errs, removeFolders(path))
	}
	return errors.Join(errs...)
}

// removeFolders removes a folder and those below it. In a cgroup the files are the kernel's and go with it.
func removeFolders(root string) error {
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
