package sshd

import (
	"os"

	"github.com/creack/pty"
	"github.com/gliderlabs/ssh"
)

// resize tells a terminal its size; one that does not take it keeps what it has.
func resize(terminal *os.File, window ssh.Window) {
	_ = pty.Setsize(terminal, &pty.Winsize{Rows: cells(window.Height), Cols: cells(window.Width)})
}

// cells keeps a number of the network within what a terminal can have.
func cells(n int) uint16 {
	return uint16(max(0, min(n, 10000)))
}
