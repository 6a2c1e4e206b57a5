package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// identify returns what an engine says about itself, and the host that it is. The identity
// is that of the engine, not of the state directory here: containers are there, and
// managers on several hosts may use one engine.
func identify(ctx context.Context, engine *client.Client) (system.Info, backend.Host, error) {
	first, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return system.Info{}, backend.Host{}, err
	}
	second, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return system.Info{}, backend.Host{}, err
	}
	host := backend.Host{ID: first.Info.ID, Name: first.Info.Name}
	if host.ID == "" || host.ID != second.Info.ID {
		// Podman, which speaks the same API, makes up another one for each answer.
		host.ID = "name:" + host.Name
	}
	return first.Info, host, nil
}

// checkHost fails if the engine is not the one that was opened: another one may have come
// to be at the same address.
func (d *Driver) checkHost(ctx context.Context) error {
	_, now, err := identify(ctx, d.engine)
	if err != nil {
		return d.typed("ask the Docker engine who it is", err)
	}
	if now.ID != d.host.ID {
		return fmt.Errorf("%w: another Docker engine, %s, is at the address of %s; restart the manager to work with it",
			backend.ErrUnavailable, now.Name, d.host.Name)
	}
	return nil
}

// Host implements backend.Driver.
func (d *Driver) Host() backend.Host { return d.host }
