package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cgroups returns the version of the cgroups at a path.
func cgroups(root string) int {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return 2
	}
	if _, err := os.Stat(filepath.Join(root, "memory")); err == nil {
		return 1
	}
	return 0
}

// neededControllers are those that kubelet asks for, and that limits of Pods are made of.
var neededControllers = []string{"cpu", "cpuset", "memory", "pids"}

// missingControllers returns the controllers, of those that are needed, that cgroups below those at a path, of this version,
// cannot have.
func missingControllers(root string, version int) []string {
	var found []string
	switch version {
	case 1:
		found = hierarchies(root)
	case 2:
		found = inheritable(root)
	}
	return slices.DeleteFunc(slices.Clone(neededControllers), func(needed string) bool { return slices.Contains(found, needed) })
}

// hierarchies returns the controllers of cgroups of version 1 that can be changed. Some share a hierarchy, whose folder has
// both names.
func hierarchies(root string) (found []string) {
	folders, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	for _, folder := range folders {
		if isWritable(filepath.Join(root, folder.Name(), "cgroup.procs")) {
			found = append(found, strings.Split(folder.Name(), ",")...)
		}
	}
	return found
}

// inheritable returns the controllers that a cgroup of version 2 has given to those below it, or can give them: it cannot
// while processes are in itself, as in a container, unless it is the first of all. See the kernel's cgroup-v2.rst, "No
// Internal Process Constraint".
func inheritable(root string) []string {
	if !isWritable(filepath.Join(root, "cgroup.subtree_control")) {
		return nil
	}
	_, err := os.Stat(filepath.Join(root, "cgroup.type")) // which the first of all has not
	if err == nil && len(words(filepath.Join(root, "cgroup.procs"))) > 0 {
		return words(filepath.Join(root, "cgroup.subtree_control"))
	}
	return words(filepath.Join(root, "cgroup.controllers"))
}

// isWritable reports whether a file exists and can be written, which is not so on a read-only file system.
func isWritable(path string) bool {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	_ = file.Close() // nothing was written
	return true
}

// words returns the words in a file; none if it cannot be read.
func words(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}
