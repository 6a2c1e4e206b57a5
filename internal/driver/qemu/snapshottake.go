package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// ownDisks returns the disks of the machine that are not VirtualDisks, the root disk first, without their sizes.
func (m *machine) ownDisks() []snapshotDisk {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []snapshotDisk
	for name, record := range m.def.DiskRecords {
		if record.Created && !record.Removing && record.VirtualDiskUID == "" {
			all = append(all, snapshotDisk{Name: name, Base: record.Base})
		}
	}
	slices.SortFunc(all, func(a, b snapshotDisk) int { return strings.Compare(a.Name, b.Name) })
	if m.def.RootCreated {
		all = slices.Insert(all, 0, snapshotDisk{Name: v1alpha1.RootDiskName, Base: m.def.Base})
	}
	return all
}

// copied is the content of a snapshot.
type copied struct {
	at     time.Time
	disks  []snapshotDisk
	memory *snapshotMemory
	// quiesced means that the file systems of the guest were frozen.
	quiesced bool
}

// take takes the snapshot. No disk of the machine is plugged, grown or removed, and the machine does not start or fall asleep,
// meanwhile.
func (s *machineSnapshot) take(ctx context.Context, m *machine, memory bool) error {
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.finishRestore(); err != nil {
		return err
	}
	m.mu.Lock()
	isOn, moving, conn, image := m.run != "", m.moving, m.conn, m.def.Image
	m.mu.Unlock()
	disks := m.ownDisks()
	for _, disk := range disks {
		if err := os.RemoveAll(s.path(disk.Name)); err != nil { // of an attempt that was not recorded
			return err
		}
	}
	s.removeMemory()
	var got *copied
	var err error
	switch {
	case isOn && moving:
		return errors.New("the machine is waking or falling asleep")
	case isOn && conn == nil:
		return errors.New("the monitor of QEMU does not answer")
	case isOn:
		got, err = s.backUp(ctx, m, conn, disks, memory)
	default:
		got, err = s.copyFiles(ctx, m, disks, memory)
	}
	if err != nil {
		s.removeMemory()
		return err
	}
	step("snapshot copied")
	for i := range got.disks {
		usage, err := measureDisk(s.path(got.disks[i].Name))
		if err != nil {
			return err
		}
		got.disks[i].SizeBytes = usage.VirtualBytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	def := s.def
	def.Taken, def.TakenAt, def.Image, def.Disks, def.Memory, def.Quiesced = true, got.at.UTC(), image, got.disks, got.memory, got.quiesced
	if err := s.write(&def); err != nil {
		return err
	}
	step("snapshot taken")
	return nil
}

// copyFiles copies the disks of a machine that is off or asleep, and its memory if that is wanted.
func (s *machineSnapshot) copyFiles(ctx context.Context, m *machine, disks []snapshotDisk, memory bool) (*copied, error) {
	got := &copied{at: time.Now(), disks: disks}
	for _, disk := range disks {
		err := s.d.copyDisk(ctx, m.path(fileOf(disk.Name)), s.path(disk.Name), func(percent int64) {
			s.progress(fmt.Sprintf("the disk %s is being copied: %d %%", disk.Name, percent))
		})
		if err != nil {
			return nil, fmt.Errorf("copy the disk %s: %w", disk.Name, err)
		}
		step("disk copied for a snapshot")
	}
	if !memory {
		return got, nil
	}
	var err error
	got.memory, err = s.linkMemory(m)
	return got, err
}

// backUp copies the disks of a running machine, as they are at one moment: before the guest changes a part of a disk that is
// not copied yet, QEMU copies that part. The guest does not stop, unless its memory is wanted.
func (s *machineSnapshot) backUp(ctx context.Context, m *machine, conn *qmp.Client, disks []snapshotDisk, memory bool) (got *copied, err error) {
	if err := diskbackup.End(ctx, conn); err != nil { // of a manager that was killed
		return nil, err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
		defer cancel()
		if endErr := diskbackup.End(cleaning, conn); err == nil {
			err = endErr
		}
	}()
	p, err := diskbackup.Query(ctx, conn)
	if err != nil {
		return nil, err
	}
	got = &copied{disks: slices.DeleteFunc(disks, func(disk snapshotDisk) bool { _, has := p.Sizes[qemu.DiskNode(disk.Name)]; return !has })}
	if len(got.disks) == 0 && !memory {
		return nil, errors.New("QEMU has no disks of the machine yet")
	}
	for _, disk := range got.disks {
		if err := s.prepareBackup(ctx, conn, p, disk); err != nil {
			return nil, fmt.Errorf("prepare the copy of the disk %s: %w", disk.Name, err)
		}
	}
	step("backup prepared")
	if !memory { // which has what the guest has not written yet
		m.freeze(ctx)
	}
	err = diskbackup.Begin(ctx, conn, guestDisks(got.disks), memory)
	got.at = time.Now()
	got.quiesced = m.thaw(ctx)
	if err != nil {
		return nil, err
	}
	step("backup begun")
	if err := diskbackup.Await(ctx, conn, s.copying); err != nil {
		return nil, err
	}
	step("backup complete")
	if memory {
		if got.memory, got.at, err = s.saveHalted(ctx, m, conn, got.disks); err != nil {
			return nil, err
		}
	}
	if err := diskbackup.End(ctx, conn); err != nil { // QEMU writes what it has cached
		return nil, err
	}
	for _, disk := range got.disks {
		if err := atomicfile.SyncFile(s.path(disk.Name)); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// copying reports the progress of the copy.
func (s *machineSnapshot) copying(percent int64) {
	s.progress(fmt.Sprintf("the disks are being copied: %d %%", percent))
}

// guestDisks returns the disks of the guest for a copy.
func guestDisks(disks []snapshotDisk) (all []diskbackup.Disk) {
	for _, disk := range disks {
		all = append(all, diskbackup.Disk{Name: disk.Name, Node: qemu.DiskNode(disk.Name)})
	}
	return all
}

// prepareBackup creates the file of a copy, and gives it to QEMU.
func (s *machineSnapshot) prepareBackup(ctx context.Context, conn *qmp.Client, nodes *diskbackup.Nodes, disk snapshotDisk) error {
	node := qemu.DiskNode(disk.Name)
	if err := s.d.createFile(ctx, s.path(disk.Name), s.d.keeper(), "the disk", disk.Base, nodes.Sizes[node]); err != nil {
		return err
	}
	file, err := os.OpenFile(s.path(disk.Name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return nodes.Prepare(ctx, conn, diskbackup.Disk{Name: disk.Name, Node: node}, file)
}

// endOldBackups removes what a manager that was killed has left of copies in QEMU.
func (m *machine) endOldBackups(conn *qmp.Client) {
	m.files.Lock()
	defer m.files.Unlock()
	ctx, cancel := context.WithTimeout(m.d.ctx, savedmemory.Timeout)
	defer cancel()
	if err := diskbackup.End(ctx, conn); err != nil && ctx.Err() == nil && !errors.Is(err, qmp.ErrClosed) {
		m.d.options.Log.Error(err, "Could not end the copies of disks that an earlier manager has begun", "machine", m.id.UID)
	}
}
