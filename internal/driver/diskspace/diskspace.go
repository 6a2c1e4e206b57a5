// Package diskspace is when a guest goes on that QEMU has halted because the file system of a disk is full.
package diskspace

import "golang.org/x/sys/unix"

// Enough is the free space, in bytes, at which the guest goes on.
const Enough = 16 << 20

// IsEnough reports whether the file system of a folder has it. It returns true if that is unknown.
func IsEnough(dir string) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return true
	}
	return uint64(fs.Bavail)*uint64(fs.Bsize) >= Enough //nolint:gosec // a size is positive
}
