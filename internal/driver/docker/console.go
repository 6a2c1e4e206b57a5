package docker

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Console implements backend.Consoler: it attaches to the terminal of the container.
func (d *Driver) Console(ctx context.Context, id backend.Identity) (io.ReadWriteCloser, error) {
	_, ctr, err := d.find(ctx, id)
	if err != nil {
		return nil, err
	}
	name := containerName(id.UID)
	if !isOn(ctr) {
		return nil, fmt.Errorf("attach to the container %s: it is %s: %w", name, ctr.State.Status, backend.ErrUnavailable)
	}
	attached, err := d.engine.ContainerAttach(ctx, name, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, d.typed("attach to the container "+name, err)
	}
	return &terminal{attached.HijackedResponse}, nil
}

// terminal is a connection to the terminal of a container.
type terminal struct{ client.HijackedResponse }

// Read implements io.Reader.
func (t *terminal) Read(into []byte) (int, error) { return t.Reader.Read(into) }

// Write implements io.Writer.
func (t *terminal) Write(data []byte) (int, error) { return t.Conn.Write(data) }

// Close implements io.Closer.
func (t *terminal) Close() error { return t.Conn.Close() }

// ConsoleLog implements backend.Consoler: the engine keeps the output of the terminal.
func (d *Driver) ConsoleLog(ctx context.Context, id backend.Identity, options backend.LogOptions) (io.ReadCloser, error) {
	if _, _, err := d.find(ctx, id); err != nil {
		return nil, err
	}
	tail := "all"
	if options.Tail >= 0 {
		tail = strconv.Itoa(options.Tail)
	}
	name := containerName(id.UID)
	log, err := d.engine.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: options.Follow, Tail: tail})
	if err != nil {
		return nil, d.typed("read the log of the container "+name, err)
	}
	return log, nil
}
