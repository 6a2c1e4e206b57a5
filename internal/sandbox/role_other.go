//go:build !linux

package sandbox

// Landlock returns the version of Landlock that the kernel has, 0 if it has none.
func Landlock() int { return 0 }
