//go:build !linux

package managers

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
