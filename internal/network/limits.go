package network

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// reservedFiles are those that are not for connections of machines: sockets of QEMU, listeners, the control socket.
const reservedFiles = 256

var errTooMany = errors.New("too many at a time")

// fileLimit returns how many connections the process may have open. The Go runtime has raised the soft limit to the hard one.
func fileLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 - reservedFiles
	}
	return int(max(64, min(limit.Cur, 1<<20)-reservedFiles))
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
