package fake

import (
	"context"
	"fmt"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// WatchSnapshots implements backend.SnapshotStore. Snapshots are complete at once.
func (d *Driver) WatchSnapshots(func(backend.SnapshotIdentity)) {}

// ObserveSnapshot implements backend.SnapshotStore.
func (d *Driver) ObserveSnapshot(_ context.Context, id backend.SnapshotIdentity) (backend.SnapshotState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state, found := d.snapshots[id.UID]
	if !found {
		return backend.SnapshotState{}, fmt.Errorf("snapshot %s: %w", id.Name, backend.ErrNotFound)
	}
	return state, nil
}

// TakeSnapshot implements backend.SnapshotStore. It stores nothing.
func (d *Driver) TakeSnapshot(_ context.Context, id backend.SnapshotIdentity, of backend.Identity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.servers[of.UID]
	if s == nil {
		return fmt.Errorf("machine %s: %w", of.Name, backend.ErrNotFound)
	}
	size := max(s.machine.DiskBytes, 1<<20)
	d.snapshots[id.UID] = backend.SnapshotState{
		Taken: true, TakenAt: d.options.Clock.Now(), AllocatedBytes: size / 10, Disks: []backend.SnapshotDisk{{Name: "root", VirtualBytes: size}},
	}
	return nil
}

// DeleteSnapshot implements backend.SnapshotStore.
func (d *Driver) DeleteSnapshot(_ context.Context, id backend.SnapshotIdentity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.snapshots, id.UID)
	return nil
}
