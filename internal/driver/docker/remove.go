package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// removePause is the polling interval for a container that is already being removed.
	removePause = 100 * time.Millisecond
	// retainedRepository is the first part of the image names of retained disks of deleted
	// machines.
	retainedRepository = "keelson-retained"
)

// Delete implements backend.Driver.
func (d *Driver) Delete(ctx context.Context, id backend.Identity, options backend.DeleteOptions) error {
	m, err := d.machine(id)
	if errors.Is(err, backend.ErrInvalid) {
		return nil // such a machine was never created
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	failed, busy := m.taskErr, m.task.Busy()
	m.taskErr = nil
	m.mu.Unlock()
	if failed != nil {
		return failed
	}
	if !busy {
		_, err := d.inspect(ctx, id.UID)
		if errors.Is(err, backend.ErrNotFound) {
			if err := m.clean(ctx, m.identity()); err != nil {
				return err
			}
			d.forget(m)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return m.begin(backend.TaskDelete, func(ctx context.Context) error { return m.remove(ctx, options) })
}

// remove stops the container and removes it and its disk.
func (m *machine) remove(ctx context.Context, options backend.DeleteOptions) error {
	step("delete begun")
	ctr, err := m.d.inspect(ctx, m.id.UID)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return m.clean(ctx, m.identity())
	case err != nil:
		return err
	}
	if isOn(&ctr) && (options.Grace > 0 || options.KeepDisk) {
		if err := m.stop(ctx, options.Grace); err != nil {
			return err
		}
	}
	if options.KeepDisk {
		if err := m.retain(ctx); err != nil {
			return err
		}
	}
	m.progress("removing the container")
	if err := m.d.removeContainer(ctx, containerName(m.id.UID)); err != nil {
		return err
	}
	step("container removed")
	return m.clean(ctx, identityOf(ctr.Config.Labels))
}

// identity returns the complete identity: DeleteAll knows only the UID.
func (m *machine) identity() backend.Identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id.Namespace == "" {
		return m.record.Machine.Identity
	}
	return m.id
}

// clean removes what remains of a machine without a container. The record goes last: it has the
// identity, from which the network's name follows.
func (m *machine) clean(ctx context.Context, id backend.Identity) error {
	if err := m.d.releaseNetwork(ctx, id); err != nil {
		return err
	}
	return m.erase()
}

// removeContainer removes a container and waits until it no longer exists.
func (d *Driver) removeContainer(ctx context.Context, name string) error {
	for {
		_, err := d.engine.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || cerrdefs.IsNotFound(err) {
			return nil
		}
		if !cerrdefs.IsConflict(err) {
			return d.typed("remove the container "+name, err)
		}
		// It is already being removed, perhaps by an earlier manager.
		select {
		case <-ctx.Done():
			return d.typed("remove the container "+name, errors.Join(ctx.Err(), err))
		case <-time.After(removePause):
		}
	}
}

// retain commits the disk as an image.
func (m *machine) retain(ctx context.Context) error {
	name := fmt.Sprintf("%s/%s/%s:%s", retainedRepository, m.id.Namespace, m.id.Name, m.id.UID)
	_, err := m.d.engine.ContainerCommit(ctx, containerName(m.id.UID), client.ContainerCommitOptions{Reference: name})
	if err != nil {
		return m.d.typed("retain the disk as the image "+name, err)
	}
	step("disk retained")
	return nil
}
