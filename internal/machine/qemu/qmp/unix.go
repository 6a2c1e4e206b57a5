package qmp

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// maxSocketPath is the length of a path that fits into the address of a socket.
const maxSocketPath = 100

// DialUnix connects to a Unix socket, whose path may be too long for its address.
func DialUnix(ctx context.Context, path string) (*net.UnixConn, error) {
	if len(path) > maxSocketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil //nolint:forcetypeassert // it is one
}
