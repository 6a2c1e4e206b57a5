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
	"github.com/keelson-dev/keelson/internal/machine/owner"
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
	o := m.own()
	m.mu.Lock()
	image := m.def.Image
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
	if o != nil {
		got, err = s.backUp(ctx, m, o, disks, memory)
	} else {
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

// backUp copies the disks of a running machine, and its memory if that is wanted.
func (s *machineSnapshot) backUp(ctx context.Context, m *machine, o *owner.Owner, disks []snapshotDisk, memory bool) (*copied, error) {
	got, saved := &copied{}, &savedMemory{}
	found, err := o.CopyDisks(ctx, owner.Copy{
		Progress: s.copying,
		Prepare: func(ctx context.Context, conn *qmp.Client, nodes *diskbackup.Nodes) ([]diskbackup.Disk, *owner.Saver, error) {
			got.disks = slices.DeleteFunc(disks, func(disk snapshotDisk) bool { _, has := nodes.Sizes[qemu.DiskNode(disk.Name)]; return !has })
			if len(got.disks) == 0 && !memory {
				return nil, nil, errors.New("QEMU has no disks of the machine yet")
			}
			for _, disk := range got.disks {
				if err := s.prepareBackup(ctx, conn, nodes, disk); err != nil {
					return nil, nil, fmt.Errorf("prepare the copy of the disk %s: %w", disk.Name, err)
				}
			}
			if !memory {
				return guestDisks(got.disks), nil, nil
			}
			saver := m.saver(saved, func(ctx context.Context, conn *qmp.Client, memory *savedmemory.Memory) error {
				s.progress("the memory is being saved")
				return memory.Write(ctx, conn, s.dir, s.countSaved)
			})
			return guestDisks(got.disks), &saver, nil
		},
	})
	if err != nil {
		return nil, err
	}
	got.at, got.quiesced = found.At, found.Quiesced
	if memory {
		if err := savedmemory.Keep(s.dir); err != nil { // not before: it takes as long as the disk of the host does
			return nil, err
		}
		got.memory = m.newSnapshotMemory(saved)
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
