package qmp

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// RunWithFile is Run, and passes the descriptor of a file to the peer with the command, for add-fd. The peer has its own
// copy of the descriptor: the caller still closes the file.
func (c *Client) RunWithFile(ctx context.Context, command string, arguments any, file *os.File, result any) error {
	// The peer keeps only the last descriptor that it has received until a command takes it.
	c.passing.Lock()
	defer c.passing.Unlock()
	return c.run(ctx, command, arguments, file, result)
}

// write writes a command, with the descriptor of a file unless file is nil; c.writing is held.
func (c *Client) write(line []byte, file *os.File) error {
	if file == nil {
		_, err := c.conn.Write(line)
		return err
	}
	conn, isUnix := c.conn.(*net.UnixConn)
	if !isUnix {
		return errors.New("only a Unix socket passes descriptors")
	}
	n, _, err := conn.WriteMsgUnix(line, syscall.UnixRights(int(file.Fd())), nil)
	if err == nil && n < len(line) {
		_, err = conn.Write(line[n:])
	}
	return err
}
