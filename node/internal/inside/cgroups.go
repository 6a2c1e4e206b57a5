package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// prepareCgroups makes the cgroup that kubelet puts all Pods below. kubelet wants to find it.
func prepareCgroups(name string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &stat); err != nil {
		return fmt.Errorf("%s: %w", cgroupRoot, err)
	}
	if stat.Type == unix.CGROUP2_SUPER_MAGIC {
		return prepareUnified(cgroupRoot, name)
	}
	return prepareHierarchies(cgroupRoot, name)
}

// prepareHierarchies makes the cgroup in each of the hierarchies of version 1. One of version 2 beside them has no limits.
func prepareHierarchies(root, name string) error {
	hierarchies, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, hierarchy := range hierarchies {
		if !hierarchy.IsDir() || hierarchy.Name() == "unified" { // a link is another name of a hierarchy that is listed, too
			continue
		}
		errs = append(errs, os.MkdirAll(filepath.Join(root, hierarchy.Name(), name), 0o755))
	}
	return errors.Join(errs...)
}

// prepareUnified makes the cgroup in the one hierarchy of version 2, and hands all controllers down.
func prepareUnified(root, name string) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(data)) {
		for _, folder := range []string{root, path} {
			// One at a time, because one that is busy elsewhere would keep away the others. kubelet says which it misses.
			_ = os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
	}
	return nil
}
