package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// cgroupRoot is where cgroups are: version 2 itself, or a folder for each hierarchy of version 1.
const cgroupRoot = "/sys/fs/cgroup"

// removeCgroups removes a cgroup, and those below it, from all hierarchies. Its processes have just been killed, and the
// kernel lets them go in its own time, so it is tried for a while.
func removeCgroups(name string) error {
	paths, err := filepath.Glob(filepath.Join(cgroupRoot, "*", name))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range append(paths, filepath.Join(cgroupRoot, name)) {
		deadline := time.Now().Add(5 * time.Second)
		for {
			err := removeTree(path)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				errs = append(errs, err)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return errors.Join(errs...)
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
