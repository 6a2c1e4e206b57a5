//go:build !linux

package node

import "syscall"

// ownNetworkAttr is never used: only Linux has real nodes.
func ownNetworkAttr() *syscall.SysProcAttr { return nil }
