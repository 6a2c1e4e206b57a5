package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
)

// retainedDir is the directory of retained disks in a state directory.
func retainedDir(stateDir string) string { return filepath.Join(stateDir, "retained") }

// retain moves the disk into retainedDir.
func (m *machine) retain() error {
	if _, err := os.Lstat(m.path(diskFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to := filepath.Join(m.d.retainedDir(), m.id.Namespace, m.id.Name, string(m.id.UID)+".qcow2")
	if err := retainFile(m.path(diskFile), to); err != nil {
		return fmt.Errorf("retain the disk: %w", err)
	}
	step("disk retained")
	return nil
}

// retainFile moves a disk durably, and gives it to the user of the manager.
func retainFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := giveFile(from, nil); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// Retained implements backend.Retainer.
func (d *Driver) Retained(context.Context) ([]backend.RetainedDisk, error) {
	return RetainedDisks(d.options.StateDir)
}

// RetainedDisks returns the retained disks in a state directory, which need not exist.
func RetainedDisks(stateDir string) ([]backend.RetainedDisk, error) {
	root := retainedDir(stateDir)
	var all []backend.RetainedDisk
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var disk backend.RetainedDisk
			if disk, err = readRetained(root, path); err == nil {
				all = append(all, disk)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just been removed
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list retained disks: %w", err)
	}
	return all, nil
}

// measureDisk returns the usage of a disk.
func measureDisk(path string) (backend.DiskUsage, error) {
	info, err := os.Stat(path)
	if err != nil {
		return backend.DiskUsage{}, err
	}
	usage := backend.DiskUsage{AllocatedBytes: info.Size(), VirtualBytes: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		usage.AllocatedBytes = stat.Blocks * 512 // the unit of stat(2), regardless of the file system
	}
	header, err := diskimage.ReadHeader(path)
	if err == nil && header.Magic == diskimage.Qcow2Magic {
		usage.VirtualBytes = int64(header.Size) //nolint:gosec // qemu-img does not create larger ones
	}
	return usage, err
}

// DiskUsage implements backend.DiskMeter.
func (d *Driver) DiskUsage(context.Context) (map[types.UID]backend.DiskUsage, error) {
	all := map[types.UID]backend.DiskUsage{}
	for _, m := range d.all() {
		files, err := dataDisks(m.dir)
		if err != nil {
			return nil, err
		}
		var sum backend.DiskUsage
		paths := append(slices.Collect(maps.Values(files)), m.path(diskFile))
		for _, v := range d.allDisks() {
			if v.isOwnedBy(m.id.UID) {
				paths = append(paths, v.path())
			}
		}
		for _, path := range paths {
			usage, err := measureDisk(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("measure the disks of machine %s: %w", m.id.UID, err)
			}
			sum.AllocatedBytes += usage.AllocatedBytes
			sum.VirtualBytes += usage.VirtualBytes
		}
		all[m.id.UID] = sum
	}
	return all, nil
}

func readRetained(root, path string) (backend.RetainedDisk, error) {
	disk := backend.RetainedDisk{Path: path}
	usage, err := measureDisk(path)
	if err != nil {
		return disk, err
	}
	disk.AllocatedBytes, disk.VirtualBytes = usage.AllocatedBytes, usage.VirtualBytes
	below, err := filepath.Rel(root, path)
	if err != nil {
		return disk, err
	}
	words := strings.Split(below, string(filepath.Separator))
	if len(words) == 3 {
		disk.Namespace, disk.Name = words[0], words[1]
	}
	return disk, nil
}
