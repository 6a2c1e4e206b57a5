package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/network"
)

// Dial implements backend.Dialer through the network of the machine.
func (d *Driver) Dial(ctx context.Context, id backend.Identity, port uint16) (net.Conn, error) {
	m, err := d.find(id)
	if err != nil {
		return nil, err
	}
	w := d.networks.find(m.id.Namespace)
	switch {
	case m.isOff():
		return nil, fmt.Errorf("connect to machine %s: it is off: %w", id.UID, backend.ErrUnavailable)
	case w == nil:
		return nil, fmt.Errorf("connect to machine %s: its namespace has no network yet: %w", id.UID, backend.ErrUnavailable)
	}
	client, release, err := networkClient(w.dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, backend.ErrUnavailable)
	}
	defer release()
	conn, err := client.Dial(ctx, string(id.UID), network.TCP, port)
	if errors.Is(err, network.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to port %d of machine %s: %w", port, id.UID, err)
	}
	return conn, nil
}
