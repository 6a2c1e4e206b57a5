package sshd

import (
	"os"

	"github.com/gliderlabs/ssh"
	"golang.org/x/sys/unix"
)

// resize tells a terminal its size; one that does not take it, or is closed meanwhile, keeps what it has.
func resize(terminal *os.File, window ssh.Window) {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(descriptor uintptr) {
		_ = unix.IoctlSetWinsize(int(descriptor), unix.TIOCSWINSZ, &unix.Winsize{Row: cells(window.Height), Col: cells(window.Width)})
	})
}

// cells keeps a number of the network within what a terminal can have.
func cells(n int) uint16 {
	return uint16(max(0, min(n, 10000)))
}
