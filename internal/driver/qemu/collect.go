package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskimage"
)

// collectInterval is the interval of garbage collections of images and partial downloads.
const collectInterval = time.Hour

// digestForm matches the names of images.
var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// collectImages collects partial downloads immediately, and images as well periodically, until the driver is closed.
func (d *Driver) collectImages() {
	ticker := time.NewTicker(collectInterval)
	defer ticker.Stop()
	// The controller has an hour to say which images VirtualMachineImages need.
	var inUse func() (fileSet, error)
	for {
		removed, err := d.images.collect(time.Now(), inUse)
		inUse = d.imagesInUse
		d.templates.collect(time.Now())
		if len(removed) > 0 {
			d.options.Log.Info("Removed unused images and abandoned downloads", "files", removed)
		}
		if err != nil {
			d.options.Log.Error(err, "Could not collect unused images; retrying", "after", collectInterval)
		}
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// collect removes abandoned partial downloads, and images that have not been used for a while. The modification time of an
// image records when it was last in use, so it survives restarts of the manager. It returns the names of the removed files.
//
// Without inUse, images stay. A machine is in the result of inUse before it requests its image, and get and collect exclude each other: an image that
// get has returned is in use, and the next get downloads a removed image again.
func (i *images) collect(now time.Time, inUse func() (fileSet, error)) (removed []string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	remove := func(path string) {
		if rmErr := os.Remove(path); rmErr != nil {
			err = errors.Join(err, rmErr)
		} else {
			removed = append(removed, filepath.Base(path))
		}
	}
	parts, err := i.parts()
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		_, arrived := os.Stat(filepath.Join(i.dir, p.digest))
		if !p.busy && (arrived == nil || now.Sub(p.modified) > partKeep) {
			remove(p.path)
		}
	}
	if i.keep == 0 || inUse == nil {
		return removed, err
	}
	used, usedErr := inUse()
	entries, listErr := os.ReadDir(i.dir)
	if err := errors.Join(err, usedErr, listErr); err != nil {
		return removed, err
	}
	for _, entry := range entries {
		path := filepath.Join(i.dir, entry.Name())
		info, infoErr := entry.Info()
		switch {
		case infoErr != nil:
			err = errors.Join(err, infoErr)
		case !info.Mode().IsRegular() || !digestForm.MatchString(entry.Name()):
		case used.has(info):
			err = errors.Join(err, os.Chtimes(path, now, now))
		case now.Sub(info.ModTime()) > i.keep:
			remove(path)
			step("image removed")
		}
	}
	return removed, err
}

// fileSet is a set of files, identified by inode.
type fileSet []fs.FileInfo

// add adds a file if it exists.
func (s *fileSet) add(path string) error {
	info, err := os.Stat(path)
	if err == nil {
		*s = append(*s, info)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s fileSet) has(info fs.FileInfo) bool {
	return slices.ContainsFunc(s, func(other fs.FileInfo) bool { return os.SameFile(info, other) })
}

// imagesInUse returns the images that machines use or are about to use: those in their definitions, and the backing files
// of all disks, because a disk may be retained or have an unreadable definition. The order matters: a disk is retained
// before its machine is removed.
func (d *Driver) imagesInUse() (fileSet, error) {
	var used fileSet
	var errs []error
	for _, m := range d.all() {
		m.mu.Lock()
		base, image, cdrom := m.def.Base, m.def.Image, m.def.CDROM
		records, disks := maps.Clone(m.def.DiskRecords), m.def.Disks
		m.mu.Unlock()
		for _, record := range records {
			if record.Base != nil {
				errs = append(errs, used.add(record.Base.Path))
			}
		}
		if cdrom != nil && cdrom.Sha256 != "" {
			errs = append(errs, used.add(filepath.Join(d.imagesDir(), cdrom.Sha256)))
		}
		for _, disk := range disks {
			if disk.Image != nil && disk.Image.Sha256 != "" {
				errs = append(errs, used.add(filepath.Join(d.imagesDir(), disk.Image.Sha256)))
			}
		}
		if base != nil {
			errs = append(errs, used.add(base.Path))
		}
		for _, file := range namedFiles(image) {
			errs = append(errs, used.add(file.path))
		}
		if image != nil && image.Sha256 != "" {
			errs = append(errs, used.add(filepath.Join(d.imagesDir(), image.Sha256)))
		}
	}
	entries, err := os.ReadDir(d.machinesDir())
	errs = append(errs, err)
	for _, entry := range entries {
		errs = append(errs, used.addBacking(filepath.Join(d.machinesDir(), entry.Name(), diskFile)))
		disks, err := dataDisks(filepath.Join(d.machinesDir(), entry.Name()))
		errs = append(errs, err)
		for _, path := range disks {
			errs = append(errs, used.addBacking(path))
		}
	}
	errs = append(errs, d.virtualDiskImages(&used), d.snapshotImages(&used), d.importedFiles(&used))
	retained, err := RetainedDisks(d.options.StateDir)
	errs = append(errs, err)
	for _, disk := range retained {
		errs = append(errs, used.addBacking(disk.Path))
	}
	return used, errors.Join(errs...)
}

// virtualDiskImages adds the images of VirtualDisks.
func (d *Driver) virtualDiskImages(used *fileSet) error {
	var errs []error
	for _, v := range d.allDisks() {
		def := v.definition()
		if def.Base != nil {
			errs = append(errs, used.add(def.Base.Path))
		}
		if def.Image != nil && def.Image.Sha256 != "" {
			errs = append(errs, used.add(filepath.Join(d.imagesDir(), def.Image.Sha256)))
		}
	}
	entries, err := os.ReadDir(d.disksDir())
	errs = append(errs, err)
	for _, entry := range entries {
		errs = append(errs, used.addBacking(filepath.Join(d.disksDir(), entry.Name(), diskFile)))
	}
	return errors.Join(errs...)
}

// snapshotImages adds the images of snapshots.
func (d *Driver) snapshotImages(used *fileSet) error {
	paths, err := filepath.Glob(filepath.Join(d.snapshotsDir(), "*", "*.qcow2"))
	errs := []error{err}
	for _, path := range paths {
		errs = append(errs, used.addBacking(path))
	}
	return errors.Join(errs...)
}

// addBacking adds the backing file of a disk, if both exist.
func (s *fileSet) addBacking(disk string) error {
	backing, err := readBacking(disk)
	if errors.Is(err, fs.ErrNotExist) || backing == "" && err == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the backing file of the disk %s: %w", disk, err)
	}
	if !filepath.IsAbs(backing) {
		backing = filepath.Join(filepath.Dir(disk), backing)
	}
	return s.add(backing)
}

// readBacking returns the name of the backing file of a disk, or "" if it has none or is not qcow2.
func readBacking(path string) (string, error) {
	header, err := diskimage.ReadHeader(path)
	switch {
	case err != nil:
		return "", err
	case header.Magic != diskimage.Qcow2Magic || header.BackingFileOffset == 0:
		return "", nil
	case header.BackingFileSize > diskimage.MaxBackingName:
		return "", fmt.Errorf("the name of its backing file has %d bytes", header.BackingFileSize)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	name := make([]byte, header.BackingFileSize)
	_, err = file.ReadAt(name, int64(header.BackingFileOffset)) //nolint:gosec // a negative offset is an error
	return string(name), err
}
