package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// WatchSnapshots implements backend.SnapshotStore.
func (d *Driver) WatchSnapshots(notify func(backend.SnapshotIdentity)) {
	d.snapshotWatcher.Watch(notify)
}

// ObserveSnapshot implements backend.SnapshotStore.
func (d *Driver) ObserveSnapshot(_ context.Context, id backend.SnapshotIdentity) (backend.SnapshotState, error) {
	s := d.findSnapshot(id.UID)
	if s == nil {
		return backend.SnapshotState{}, fmt.Errorf("snapshot %s: %w", id.Name, backend.ErrNotFound)
	}
	s.mu.Lock()
	def := s.def
	state := backend.SnapshotState{Taken: def.Taken, TakenAt: def.TakenAt, Busy: s.work.Busy()}
	_, state.Progress = s.work.State()
	state.FailedAt, state.Failure = s.work.Failure(backend.TaskCreate)
	s.mu.Unlock()
	if !state.Taken {
		return state, nil
	}
	if path := def.missing(s.dir); path != "" {
		state.Lost = fmt.Sprintf("the file %s is missing: restore it, or delete the VirtualMachineSnapshot", path)
		return state, nil
	}
	var err error
	if state.AllocatedBytes, err = def.measure(s.dir); err != nil {
		return state, err
	}
	state.MemoryBytes, state.Quiesced = def.Memory.size(), def.Quiesced
	for _, disk := range def.Disks {
		state.Disks = append(state.Disks, backend.SnapshotDisk{Name: disk.Name, VirtualBytes: disk.SizeBytes})
	}
	return state, nil
}

// measure returns the space that a snapshot in a folder uses in the file system.
func (def *snapshotDefinition) measure(dir string) (int64, error) {
	all := def.Memory.size()
	for _, disk := range def.Disks {
		usage, err := measureDisk(filepath.Join(dir, fileOf(disk.Name)))
		if err != nil {
			return 0, fmt.Errorf("measure the snapshot %s: %w", def.Name, err)
		}
		all += usage.AllocatedBytes
	}
	return all, nil
}

// StoredSnapshots returns the complete snapshots in a state directory, which need not exist, sorted.
func StoredSnapshots(stateDir string) ([]backend.StoredSnapshot, error) {
	entries, err := os.ReadDir(snapshotsDir(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var all []backend.StoredSnapshot
	for _, entry := range entries {
		dir := filepath.Join(snapshotsDir(stateDir), entry.Name())
		def, err := readSnapshotDefinition(dir)
		if err != nil || !def.Taken {
			continue // it is being taken or removed, or Open has reported it
		}
		size, err := def.measure(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed just now, or is lost, which its condition reports
		}
		if err != nil {
			return nil, err
		}
		all = append(all, backend.StoredSnapshot{
			Namespace: def.Namespace, Name: def.Name, Machine: def.Machine.Name, TakenAt: def.TakenAt, AllocatedBytes: size,
		})
	}
	slices.SortFunc(all, func(a, b backend.StoredSnapshot) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all, nil
}

// TakeSnapshot implements backend.SnapshotStore.
func (d *Driver) TakeSnapshot(_ context.Context, id backend.SnapshotIdentity, of backend.Source) error {
	if err := checkUID(id.UID); err != nil {
		return err
	}
	if s := d.findSnapshot(id.UID); s != nil && s.definition().Taken {
		return nil
	}
	m, err := d.find(of.Server)
	if err != nil {
		return err
	}
	m.mu.Lock()
	created := m.def.Created
	m.mu.Unlock()
	name := of.Server.Name
	if !created {
		return fmt.Errorf("machine %s: %w", name, backend.ErrNotCreated)
	}
	if of.Memory {
		err = m.checkSnapshotMemory()
	} else if len(m.ownDisks()) == 0 {
		err = fmt.Errorf("%w that a snapshot could have: VirtualDisks are not in snapshots, and the default guest has a root disk only with spec.resource.rootDisk",
			backend.ErrNoDisks)
	}
	if err != nil {
		return fmt.Errorf("machine %s: %w", name, err)
	}
	s, err := d.addSnapshot(id, of.Server)
	if err != nil {
		return err
	}
	s.begin(m, of.Memory)
	return nil
}

// DeleteSnapshot implements backend.SnapshotStore.
func (d *Driver) DeleteSnapshot(_ context.Context, id backend.SnapshotIdentity) error {
	if checkUID(id.UID) != nil {
		return nil // such a snapshot was never taken
	}
	dir := filepath.Join(d.snapshotsDir(), string(id.UID))
	if s := d.findSnapshot(id.UID); s != nil {
		if err := s.close(); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := removeFolder(dir); err != nil {
		return fmt.Errorf("delete the snapshot %s: %w", id.Name, err)
	}
	step("snapshot removed")
	d.mu.Lock()
	delete(d.snapshots, id.UID)
	d.mu.Unlock()
	return nil
}

// close ends the use of a snapshot. The error is ErrInProgress until that is so.
func (s *machineSnapshot) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleting = true
	switch {
	case s.work.Cancel():
		return fmt.Errorf("the attempt to take the snapshot %s is being ended: %w", s.id.Name, backend.ErrInProgress)
	case s.readers > 0:
		return fmt.Errorf("a machine is being created or restored from the snapshot %s: %w", s.id.Name, backend.ErrInProgress)
	}
	return nil
}
