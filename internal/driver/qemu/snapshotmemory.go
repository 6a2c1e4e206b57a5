package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// fewBytes is what may have changed on the disks since they were copied, so that the machine is halted to copy that. Tests change it.
var fewBytes int64 = 16 << 20

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
	if m.def.GuestForked || m.def.GuestWaits {
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

// newSnapshotMemory returns what a snapshot has besides the saved memory; m.mu is held.
func (m *machine) newSnapshotMemory(saved *savedMemory) *snapshotMemory {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	saved := m.def.Asleep
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

// saveHalted halts the machine, copies what has changed on its disks since they were copied, saves its memory, and lets it go on.
func (s *machineSnapshot) saveHalted(ctx context.Context, m *machine, conn *qmp.Client, disks []snapshotDisk) (memory *snapshotMemory, at time.Time, err error) {
	if err := diskbackup.CopyUntilFew(ctx, conn, guestDisks(disks), fewBytes, s.copying); err != nil {
		return nil, at, err
	}
	saved, err := m.describeMemory(ctx, conn)
	if err != nil {
		return nil, at, err
	}
	s.progress("the memory is being saved")
	m.setMoving(true)
	wasRunning, err := savedmemory.Halt(ctx, conn)
	at = time.Now()
	step("halted for a snapshot")
	if err == nil {
		err = s.copyRest(ctx, conn, disks)
	}
	if err == nil {
		err = saved.Write(ctx, conn, s.dir, s.countSaved)
	}
	if err != nil {
		m.unhalt(ctx, conn, wasRunning)
		return nil, at, errors.Join(err, m.refresh(conn))
	}
	step("memory in the snapshot")
	err = m.goOn(ctx, conn, wasRunning)
	m.d.options.Log.V(1).Info("A machine was halted for a snapshot", "machine", m.id.UID, "duration", time.Since(at))
	if err == nil {
		err = savedmemory.Keep(s.dir) // not before: it takes as long as the disk of the host does
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newSnapshotMemory(saved), at, err
}

// copyRest copies what has changed on the disks of a halted machine since they were copied.
func (s *machineSnapshot) copyRest(ctx context.Context, conn *qmp.Client, disks []snapshotDisk) error {
	if err := diskbackup.CopyChanged(ctx, conn, guestDisks(disks), s.copying); err != nil {
		return err
	}
	return diskbackup.End(ctx, conn) // QEMU does not let the disks go before
}

// goOn lets a machine go on whose memory was saved. It takes its disks back.
func (m *machine) goOn(ctx context.Context, conn *qmp.Client, wasRunning bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
	defer cancel()
	err := conn.Run(ctx, "cont", nil, nil)
	if err == nil && !wasRunning {
		err = conn.Run(ctx, "stop", nil, nil) // QEMU has no other way to take the disks back
	}
	m.setMoving(false)
	if err != nil {
		return fmt.Errorf("resume the machine after its memory was saved: %w", err)
	}
	step("gone on after a snapshot")
	return m.refresh(conn)
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
	def.Asleep, def.Started, def.BootMemory, def.Shape = &saved, &started, memory.BootMemory, saved.Shape
	def.Asleep.At = time.Now().UTC()
	def.GuestWaits = false
}
