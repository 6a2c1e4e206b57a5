package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// snapshotDefinitionFile is the file with the definition of a snapshot in its folder. Its disks have the names that they have in
// the folder of a machine.
const snapshotDefinitionFile = "snapshot.json"

// machineSnapshot is a snapshot of the disks of a machine, and of its memory if that was wanted. Its files are independent of the machine and of those that are made
// of it: a disk in it is an overlay of the image of the disk, as that of the machine is, and machines get copies.
type machineSnapshot struct {
	d   *Driver
	id  backend.SnapshotIdentity
	dir string

	// mu is locked after Driver.mu and machine.mu.
	mu  sync.Mutex
	def snapshotDefinition
	// work is the attempt in progress.
	work operation.Slot
	// deleting means that no machine can be made of the snapshot or restored from it any more, and readers is the number of those
	// that are being made or restored.
	deleting bool
	readers  int

	// savedBytes is the size of the memory, also while that is incomplete.
	savedBytes atomic.Int64
}

// snapshotDefinition is the persistent state of a snapshot.
type snapshotDefinition struct {
	backend.SnapshotIdentity `json:"identity"`
	// Machine is what the snapshot is of.
	Machine backend.Identity `json:"machine"`
	// Taken means that the files are complete. Nothing changes after that.
	Taken bool `json:"taken,omitempty"`
	// TakenAt is the moment of the snapshot.
	TakenAt time.Time `json:"takenAt,omitzero"`
	// Image is what the machine boots; nil means the default guest.
	Image *v1alpha1.Image `json:"image,omitempty"`
	// Disks are the disks, the root disk first.
	Disks []snapshotDisk `json:"disks,omitempty"`
	// Quiesced means that the file systems of the guest were frozen.
	Quiesced bool `json:"quiesced,omitempty"`
	// Memory is the memory; nil if the snapshot has none.
	Memory *snapshotMemory `json:"memory,omitempty"`
}

// snapshotDisk is a disk in a snapshot.
type snapshotDisk struct {
	// Name is v1alpha1.RootDiskName, or that of a disk of spec.disks.
	Name string `json:"name"`
	// Base is its image; nil if it has none.
	Base *qemu.Image `json:"base,omitempty"`
	// SizeBytes is the size seen by a guest.
	SizeBytes int64 `json:"sizeBytes"`
}

// fileOf returns the name of the file of a disk in a folder of a machine or a snapshot.
func fileOf(disk string) string {
	if disk == v1alpha1.RootDiskName {
		return diskFile
	}
	return diskPath(disk)
}

func (s *machineSnapshot) path(disk string) string { return filepath.Join(s.dir, fileOf(disk)) }

func (d *Driver) snapshotsDir() string { return snapshotsDir(d.options.StateDir) }

func snapshotsDir(stateDir string) string { return filepath.Join(stateDir, "snapshots") }

// disk returns a disk in the snapshot; nil if there is none.
func (def *snapshotDefinition) disk(name string) *snapshotDisk {
	for i := range def.Disks {
		if def.Disks[i].Name == name {
			return &def.Disks[i]
		}
	}
	return nil
}

// readSnapshotDefinition reads the definition of the snapshot in a folder.
func readSnapshotDefinition(dir string) (def snapshotDefinition, err error) {
	err = readRecord(dir, snapshotDefinitionFile, "snapshot", &def, &def.UID)
	return def, err
}

// write makes def the definition, durably; s.mu is held.
func (s *machineSnapshot) write(def *snapshotDefinition) error {
	if err := atomicfile.WriteJSON(filepath.Join(s.dir, snapshotDefinitionFile), def, atomicfile.Durable); err != nil {
		return fmt.Errorf("record the snapshot %s: %w", s.id.Name, err)
	}
	s.def = *def
	return nil
}

// openSnapshots finds the snapshots in the state directory.
func (d *Driver) openSnapshots() error {
	return d.openFolders(d.snapshotsDir(), "snapshot", func(dir string) error {
		def, err := readSnapshotDefinition(dir)
		if err != nil {
			return err
		}
		s := &machineSnapshot{d: d, id: def.SnapshotIdentity, dir: dir, def: def}
		s.savedBytes.Store(def.Memory.size())
		d.snapshots[def.UID] = s
		return nil
	})
}

// findSnapshot returns a snapshot, nil if there is none.
func (d *Driver) findSnapshot(uid types.UID) *machineSnapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.snapshots[uid]
}

// addSnapshot returns a snapshot. It records it if there is none.
func (d *Driver) addSnapshot(id backend.SnapshotIdentity, of backend.Identity) (*machineSnapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("driver qemu is closed: %w", backend.ErrUnavailable)
	}
	if s := d.snapshots[id.UID]; s != nil {
		return s, nil
	}
	s := &machineSnapshot{d: d, id: id, dir: filepath.Join(d.snapshotsDir(), string(id.UID))}
	if _, err := os.Lstat(filepath.Join(s.dir, snapshotDefinitionFile)); err == nil {
		return nil, fmt.Errorf("the definition %s is unreadable: restore it, or delete the VirtualMachineSnapshot", filepath.Join(s.dir, snapshotDefinitionFile))
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the snapshot %s: %w", id.Name, err)
	}
	if err := s.write(&snapshotDefinition{SnapshotIdentity: id, Machine: of}); err != nil {
		return nil, err
	}
	step("snapshot defined")
	d.snapshots[id.UID] = s
	return s, nil
}

// definition returns a copy of the definition.
func (s *machineSnapshot) definition() snapshotDefinition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.def
}

// progress reports the progress of the work.
func (s *machineSnapshot) progress(text string) {
	if s.work.SetProgress(text) {
		s.notify()
	}
}

// notify notifies the controller of a change of the snapshot.
func (s *machineSnapshot) notify() { s.d.snapshotWatcher.Notify(s.id) }

// begin starts an attempt to take the snapshot in the background, unless there is one or it is not wanted any more.
func (s *machineSnapshot) begin(m *machine, memory bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleting || s.def.Taken {
		return
	}
	_ = s.work.Begin(s.d.ctx, &s.d.tasks, operation.Work{
		Kind: backend.TaskCreate, Progress: "the machine is being copied", Changed: s.notify,
		Do: func(ctx context.Context) error { return s.take(ctx, m, memory) },
	})
}

// files returns the paths of the files of the complete snapshot.
func (def *snapshotDefinition) files(dir string) []string {
	var all []string
	for _, disk := range def.Disks {
		all = append(all, filepath.Join(dir, fileOf(disk.Name)))
	}
	if def.Memory != nil {
		all = append(all, filepath.Join(dir, savedmemory.File))
	}
	return all
}

// missing returns a file of the complete snapshot that does not exist; empty if they all do.
func (def *snapshotDefinition) missing(dir string) string {
	for _, path := range def.files(dir) {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}
