package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// identify returns an engine's information about itself, and the host it stands for. The host is
// identified by the engine, not by the local state directory: the containers are in the engine, and
// managers on several hosts may share it.
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
		// Podman, which serves the same API, generates a new ID for each response.
		host.ID = "name:" + host.Name
	}
	return first.Info, host, nil
}

// checkHost fails if the engine is not the one that was opened: another one may serve the same
// address by now.
func (d *Driver) checkHost(ctx context.Context) error {
	_, now, err := identify(ctx, d.engine)
	if err != nil {
		return d.typed("query the identity of the Docker engine", err)
	}
	if now.ID != d.host.ID {
		return fmt.Errorf("%w: another Docker engine, %s, has replaced %s at this address; restart the manager to use it",
			backend.ErrUnavailable, now.Name, d.host.Name)
	}
	return nil
}

// Host implements backend.Driver.
func (d *Driver) Host() backend.Host { return d.host }
