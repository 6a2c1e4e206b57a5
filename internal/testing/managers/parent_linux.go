package managers

import "syscall"

// dieWithParent lets a process end with the test, whatever ends that.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
