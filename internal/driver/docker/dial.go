package docker

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/moby/moby/api/types/container"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Dial implements backend.Dialer: it connects to the address of the container, which the host of the engine reaches.
func (d *Driver) Dial(ctx context.Context, id backend.Identity, port uint16) (net.Conn, error) {
	_, ctr, err := d.find(ctx, id)
	if err != nil {
		return nil, err
	}
	var known []string
	if ctr.State.Status == container.StateRunning {
		known = addresses(ctr.NetworkSettings)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("connect to the container %s: it is %s: %w", containerName(id.UID), ctr.State.Status, backend.ErrUnavailable)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(known[0], strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("connect to the container %s: %w", containerName(id.UID), err)
	}
	return conn, nil
}
