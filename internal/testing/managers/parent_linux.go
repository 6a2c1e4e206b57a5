package managers

import "syscall"

// dieWithParent kills the process at the end of the test process, whatever ends that.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
