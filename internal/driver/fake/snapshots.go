package fake

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

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
func (d *Driver) TakeSnapshot(_ context.Context, id backend.SnapshotIdentity, of backend.Source) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.servers[of.Server.UID]
	if s == nil {
		return fmt.Errorf("machine %s: %w", of.Server.Name, backend.ErrNotFound)
	}
	size := max(s.machine.DiskBytes, 1<<20)
	state := backend.SnapshotState{
		Taken: true, TakenAt: d.options.Clock.Now(), AllocatedBytes: size / 10, Disks: []backend.SnapshotDisk{{Name: "root", VirtualBytes: size}},
	}
	if of.Memory && !s.IsOn() && s.State != backend.StateAsleep {
		return fmt.Errorf("machine %s: %w", of.Server.Name, backend.ErrNotRunning)
	}
	if of.Memory {
		state.MemoryBytes = s.machine.MemoryBytes / 10
		state.AllocatedBytes += state.MemoryBytes
	}
	d.snapshots[id.UID] = state
	return nil
}

// RestoreServer implements backend.SnapshotStore.
func (d *Driver) RestoreServer(_ context.Context, id backend.Identity, restore backend.Restore) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin("RestoreServer", id); err != nil {
		return err
	}
	s, err := d.find(id)
	switch {
	case err != nil:
		return err
	case s.IsOn():
		return fmt.Errorf("server %s is on", id.UID)
	case restore.Token == "":
		s.RestoreWaits, s.Restoring = false, ""
		return nil
	case s.Restored == restore.Token:
		return nil
	}
	failure := d.failedRestore
	d.failedRestore = nil
	return d.do(s, backend.TaskRestore, func() {
		s.FailedRestore, s.RestoreWaits, s.Restoring = nil, false, ""
		if failure != nil {
			s.FailedRestore = &backend.FailedRestore{Token: restore.Token, Err: failure}
			return
		}
		s.Restored = restore.Token
		memory := int64(0)
		if restore.Memory {
			memory = d.snapshots[restore.Snapshot.UID].MemoryBytes
		}
		s.State, s.SavedBytes, s.Asleep = backend.StateStopped, memory, nil
		if memory > 0 {
			s.State, s.Asleep = backend.StateAsleep, &backend.Asleep{Since: d.options.Clock.Now()}
		}
	})
}

// DelayRestore makes a server one whose restore was begun and waits.
func (d *Driver) DelayRestore(uid types.UID, token string) {
	d.with(uid, func(s *server) { s.RestoreWaits, s.Restoring = true, token })
}

// FailRestore makes the next restore fail.
func (d *Driver) FailRestore(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failedRestore = err
}

// DeleteSnapshot implements backend.SnapshotStore.
func (d *Driver) DeleteSnapshot(_ context.Context, id backend.SnapshotIdentity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.snapshots, id.UID)
	return nil
}
