package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// restoreSuffix is the suffix of the copy of a disk of a snapshot, beside the disk that it replaces.
const restoreSuffix = ".restore"

// restoreRetryInterval is the interval at which a restore whose disks could not be put in place is tried again.
const restoreRetryInterval = 10 * time.Second

// restoring is a restore that is decided: its copies are complete, and each replaces the disk of its name. It is written before the
// first of them does, so that a machine never starts with some disks of the snapshot and some of before.
type restoring struct {
	// Token identifies the request.
	Token string `json:"token"`
	// Disks are the names of the disks.
	Disks []string `json:"disks"`
	// Memory is the memory in the snapshot, with which the machine goes on; nil if it boots. NoMemory is why it boots although there
	// is memory.
	Memory   *snapshotMemory `json:"memory,omitempty"`
	NoMemory string          `json:"noMemory,omitempty"`
}

// failedRestore is the last attempt to restore a machine, if it failed.
type failedRestore struct {
	token string
	err   error
	at    time.Time
}

// RestoreServer implements backend.SnapshotStore.
func (d *Driver) RestoreServer(_ context.Context, id backend.Identity, restore backend.Restore) error {
	m, err := d.find(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	isOn, created, isDone := m.run != "", m.def.Created, m.def.Restored == restore.Token
	isDecided, failed := m.def.Restoring != nil, m.failedRestore
	m.mu.Unlock()
	switch {
	case isDone:
		return nil
	case !created:
		return fmt.Errorf("machine %s: %w", id.Name, backend.ErrNotCreated)
	case isOn:
		return fmt.Errorf("machine %s is on: it is restored when it is off", id.Name)
	case isDecided && failed.err != nil && time.Since(failed.at) < restoreRetryInterval:
		return failed.err
	}
	return m.begin(backend.TaskRestore, func(ctx context.Context) error {
		err := m.restore(ctx, restore)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.failedRestore = failedRestore{}
		if err != nil && ctx.Err() == nil {
			m.failedRestore = failedRestore{restore.Token, err, time.Now()}
		}
		return err
	})
}

// failedAttempt returns the restore that has failed without a change of the machine; nil if there is none. m.mu is held.
func (m *machine) failedAttempt() *backend.FailedRestore {
	if m.failedRestore.err == nil || m.def.Restoring != nil {
		return nil
	}
	return &backend.FailedRestore{Token: m.failedRestore.token, Err: m.failedRestore.err}
}

// restore replaces the disks of a machine that is off or asleep by those of a snapshot. Until it records the decision, it changes
// nothing.
func (m *machine) restore(ctx context.Context, r backend.Restore) error {
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.finishRestore(); err != nil {
		return err
	}
	m.mu.Lock()
	isDone := m.def.Restored == r.Token
	m.mu.Unlock()
	if isDone {
		return nil
	}
	m.removeRestoreCopies()
	decided, disks, err := m.copySnapshot(ctx, r)
	if err == nil {
		err = m.decideRestore(decided, disks)
	}
	if err != nil {
		m.removeRestoreCopies()
		return err
	}
	step("restore decided")
	savedmemory.Remove(m.dir)
	return m.finishRestore()
}

// copySnapshot copies the disks of a snapshot that the machine has, too, beside them, and the memory if it is wanted. It returns the
// restore, and these disks.
func (m *machine) copySnapshot(ctx context.Context, r backend.Restore) (*restoring, []snapshotDisk, error) {
	s, end, err := m.d.beginRead(r.Snapshot.UID)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	def := s.definition()
	if def.Machine.UID != m.id.UID {
		return nil, nil, fmt.Errorf("the snapshot %s is of another machine", s.id.Name)
	}
	decided := &restoring{Token: r.Token}
	var all []snapshotDisk
	grown := false
	for _, own := range m.ownDisks() {
		from := def.disk(own.Name)
		if from == nil {
			continue
		}
		present, err := measureDisk(m.path(fileOf(own.Name)))
		if errors.Is(err, fs.ErrNotExist) {
			present.VirtualBytes, err = from.SizeBytes, nil // it was lost, and the copy takes its place
		}
		if err != nil {
			return nil, nil, fmt.Errorf("measure the disk %s: %w", own.Name, err)
		}
		grown = grown || present.VirtualBytes != from.SizeBytes
		field := "spec.disks[].size"
		if own.Name == v1alpha1.RootDiskName {
			field = rootDiskField
		}
		to := m.path(fileOf(own.Name)) + restoreSuffix
		if err := m.copyFrom(ctx, s, from, to, field, present.VirtualBytes); err != nil {
			return nil, nil, err
		}
		if err := atomicfile.SyncFile(to); err != nil { // it may have been grown
			return nil, nil, err
		}
		step("disk copied for a restore")
		decided.Disks, all = append(decided.Disks, own.Name), append(all, *from)
	}
	if r.Memory {
		if decided.Memory, decided.NoMemory, err = m.linkRestored(s, &def, all, grown); err != nil {
			return nil, nil, err
		}
	}
	if len(all) == 0 && decided.Memory == nil {
		return nil, nil, fmt.Errorf("the machine has none of the disks in the snapshot %s any more", s.id.Name)
	}
	return decided, all, nil
}

// decideRestore records that the copies replace the disks, which may be based on other images than before. The saved memory belongs
// to the disks before, and is no longer valid.
func (m *machine) decideRestore(decided *restoring, disks []snapshotDisk) error {
	return m.record(func(def *definition) {
		def.Restoring = decided
		def.setAsleep(nil)
		def.DiskRecords = maps.Clone(def.DiskRecords)
		for _, disk := range disks {
			if disk.Name == v1alpha1.RootDiskName {
				def.Base = disk.Base
				continue
			}
			record := def.DiskRecords[disk.Name]
			record.Base = disk.Base
			def.DiskRecords[disk.Name] = record
		}
	}, func(found *definition) bool { return found.Restoring != nil && found.Restoring.Token == decided.Token })
}

// finishRestore puts the disks of a decided restore in place, if there is one. Nothing else may use the disks of the machine before.
// m.files is held.
func (m *machine) finishRestore() error {
	m.mu.Lock()
	decided := m.def.Restoring
	m.mu.Unlock()
	if decided == nil {
		return nil
	}
	var paths []string
	for _, name := range decided.Disks {
		paths = append(paths, m.path(fileOf(name)))
	}
	for _, path := range paths {
		if err := putInPlace(path); err != nil {
			return err
		}
		step("disk restored")
	}
	if decided.Memory != nil {
		if err := putInPlace(m.path(savedmemory.File)); err != nil {
			return err
		}
		step("memory restored")
	}
	stamps, err := savedmemory.Stamp(m.dir, paths)
	if err != nil {
		return fmt.Errorf("put the disks of the snapshot in place: %w", err)
	}
	step("disks restored")
	err = m.record(func(def *definition) {
		def.Restoring, def.Restored = nil, decided.Token
		switch {
		case decided.Memory != nil:
			saved := decided.Memory.savedMemory
			saved.Files = stamps
			def.asleepWith(saved, decided.Memory.Started, decided.Memory)
			def.StartedSeedSum = decided.Memory.SeedSum
		case decided.NoMemory != "":
			def.Ended = newMemoryEnd(backend.CauseMemoryLost, decided.NoMemory)
		}
	}, func(found *definition) bool { return found.Restoring == nil })
	if err == nil {
		step("restore done")
	}
	return err
}

// putInPlace replaces a file by its copy for a restore.
func putInPlace(path string) error {
	if err := atomicfile.Place(path+restoreSuffix, path); err != nil {
		return fmt.Errorf("put the file %s of the snapshot in place: %w", filepath.Base(path), err)
	}
	return nil
}

// completeRestore is finishRestore for a machine that starts.
func (m *machine) completeRestore() error {
	m.files.Lock()
	defer m.files.Unlock()
	return m.finishRestore()
}

// settleRestore finishes a restore that a manager has decided that was killed, or removes what it has left.
func (m *machine) settleRestore() {
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.finishRestore(); err != nil {
		// The next start of the machine tries it again.
		m.d.options.Log.Error(err, "Could not finish the restore of a machine", "machine", m.id.UID)
		return
	}
	m.removeRestoreCopies()
}

// removeRestoreCopies removes the copies of a restore that is not decided. What remains is removed by the next manager.
func (m *machine) removeRestoreCopies() {
	copies, _ := filepath.Glob(m.path("*" + restoreSuffix + "*")) // the pattern is valid
	for _, path := range copies {
		_ = os.Remove(path)
	}
}
