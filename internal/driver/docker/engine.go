package docker

import (
	"context"
	"errors"
	"fmt"
	"net"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// typed converts an error of the engine to one of the driver contract.
func (d *Driver) typed(what string, err error) error {
	kind := kindOf(err)
	if kind == nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, kind, err)
}

// kindOf returns the error of the driver contract that an error of the engine stands for; nil if
// there is none.
func kindOf(err error) error {
	var network net.Error
	switch {
	case cerrdefs.IsNotFound(err):
		return backend.ErrNotFound
	case cerrdefs.IsInvalidArgument(err):
		return backend.ErrInvalid
	case client.IsErrConnectionFailed(err), cerrdefs.IsUnavailable(err), errors.As(err, &network),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return backend.ErrUnavailable
	}
	return nil
}

// inspect returns the container of a machine. The error is a backend.ErrNotFound if there is none.
func (d *Driver) inspect(ctx context.Context, uid types.UID) (container.InspectResponse, error) {
	found, err := d.engine.ContainerInspect(ctx, containerName(uid), client.ContainerInspectOptions{})
	if err != nil {
		return container.InspectResponse{}, d.typed("inspect the container "+containerName(uid), err)
	}
	ctr := found.Container
	if ctr.Config == nil || identityOf(ctr.Config.Labels).UID != uid {
		// Another container: only the label identifies Keelson's.
		return container.InspectResponse{}, fmt.Errorf("the container %s does not have Keelson's label: %w", containerName(uid), backend.ErrNotFound)
	}
	return ctr, nil
}
