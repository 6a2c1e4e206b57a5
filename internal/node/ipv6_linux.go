package node

import "syscall"

// ownNetworkAttr starts a program in a network namespace of its own.
func ownNetworkAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
}
