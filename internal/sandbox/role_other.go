//go:build !linux

package sandbox

// Landlock returns the version of Landlock that the kernel has, 0 if it has none.
func Landlock() int { return 0 }

// DenyPrograms does nothing: it is about Linux.
func DenyPrograms() error { return nil }
