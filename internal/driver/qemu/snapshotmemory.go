package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
)

// snapshotMemory is the memory in a snapshot. Its file is that of a machine that is asleep.
type snapshotMemory struct {
	savedMemory

	// Started, BootMemory, SeedSum and MAC are those of the definition of the machine.
	Started    backend.Machine `json:"started"`
	BootMemory int64           `json:"bootMemory"`
	SeedSum    string          `json:"seedSum"`
	MAC        string          `json:"mac"`
}

// size returns the size of the file; 0 if there is none.
func (s *snapshotMemory) size() int64 {
	if s == nil {
		return 0
	}
	return s.Size
}

// checkSnapshotMemory returns an error if the memory of the machine cannot be in a snapshot.
func (m *machine) checkSnapshotMemory() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == "" && m.def.Asleep == nil {
		return backend.ErrNotRunning
	}
	if m.startedWith().Firmware == v1alpha1.FirmwareUEFI {
		return fmt.Errorf("%w: the memory of a machine with UEFI firmware cannot be in a snapshot: create a VirtualMachineSnapshot without memory", backend.ErrInvalid)
	}
	if m.def.Owner.Owed.Name || m.def.Owner.Owed.Start {
		return savedmemory.ErrUnnamed
	}
	for name, record := range m.def.DiskRecords {
		if record.VirtualDiskUID != "" && record.Created {
			return fmt.Errorf("%w: the disk %s is a VirtualDisk, which is in no snapshot, and the memory of the machine fits only all of its disks: "+
				"create a VirtualMachineSnapshot without memory", backend.ErrInvalid, name)
		}
	}
	return nil
}

// newSnapshotMemory returns what a snapshot has besides the saved memory.
func (m *machine) newSnapshotMemory(saved *savedMemory) *snapshotMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	memory := &snapshotMemory{
		savedMemory: *saved, Started: *m.startedWith(), BootMemory: m.def.BootMemory, SeedSum: m.def.StartedSeedSum, MAC: m.def.hardwareAddress(),
	}
	memory.SleepOptions, memory.Run, memory.Files = backend.SleepOptions{}, "", nil // these are of the machine that is asleep
	return memory
}

// countSaved counts the bytes of the memory of the snapshot so far. It fails if the limit is exceeded.
func (s *machineSnapshot) countSaved(size int64) error {
	s.savedBytes.Store(size)
	return s.d.checkSaved()
}

// removeMemory removes the memory of an attempt that was not recorded.
func (s *machineSnapshot) removeMemory() {
	savedmemory.Remove(s.dir)
	s.savedBytes.Store(0)
}

// linkMemory gives the snapshot the memory of a machine that is asleep. The file never changes, so that both can have it.
func (s *machineSnapshot) linkMemory(m *machine) (*snapshotMemory, error) {
	saved := m.savedMemory()
	if saved == nil {
		return nil, backend.ErrNotRunning
	}
	if err := s.countSaved(saved.Size); err != nil {
		return nil, err
	}
	if err := os.Link(m.path(savedmemory.File), filepath.Join(s.dir, savedmemory.File)); err != nil {
		return nil, err
	}
	return m.newSnapshotMemory(saved), atomicfile.SyncDir(s.dir)
}

// linkRestored gives a machine the memory in a snapshot beside its files, if it fits the disks of the machine, which get those of the
// snapshot. Otherwise it returns why not.
func (m *machine) linkRestored(s *machineSnapshot, def *snapshotDefinition, disks []snapshotDisk, grown bool) (memory *snapshotMemory, why string, err error) {
	switch {
	case def.Memory == nil:
		return nil, "", nil
	case grown:
		return nil, "a disk of the machine is larger than it was", nil
	case len(disks) != len(def.Disks):
		return nil, "the machine does not have all disks that it had", nil
	}
	to := m.path(savedmemory.File) + restoreSuffix
	if err := os.Link(s.memoryPath(), to); err != nil {
		return nil, "", fmt.Errorf("use the memory in the snapshot %s: %w", s.id.Name, err)
	}
	step("memory linked for a restore")
	return def.Memory, "", nil
}

func (s *machineSnapshot) memoryPath() string { return filepath.Join(s.dir, savedmemory.File) }

// asleepWith makes the definition that of a machine that is asleep with saved memory, as it was started.
func (def *definition) asleepWith(saved savedMemory, started backend.Machine, memory *snapshotMemory) {
	saved.At = time.Now().UTC()
	def.setAsleep(&saved)
	def.Started, def.BootMemory, def.Shape, def.Owner.Owed = &started, memory.BootMemory, saved.Shape, owner.Owed{}
}
