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

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
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
	var inUse func() *imageUse
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
// Without inUse, images stay, and so they do while one may have users that are not known. A machine is in the result of inUse before it requests its image, and get and collect exclude each other: an image that
// get has returned is in use, and the next get downloads a removed image again.
func (i *images) collect(now time.Time, inUse func() *imageUse) (removed []string, err error) {
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
	used := inUse()
	entries, listErr := os.ReadDir(i.dir)
	if unknown := errors.Join(append(used.unknown, listErr)...); unknown != nil {
		return removed, errors.Join(err, unknown)
	}
	err = errors.Join(append(used.damaged, err)...)
	for _, entry := range entries {
		path := filepath.Join(i.dir, entry.Name())
		info, infoErr := entry.Info()
		switch {
		case infoErr != nil:
			err = errors.Join(err, infoErr)
		case !info.Mode().IsRegular() || !digestForm.MatchString(entry.Name()):
		case used.files.has(info):
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

// imageUse is which images machines use or are about to use.
type imageUse struct {
	files fileSet
	// recorded are the disks of which a record says which image they have.
	recorded map[string]bool
	// damaged names the disks among them whose headers are unreadable.
	damaged []error
	// unknown is why images may be in use that are not in files.
	unknown []error
}

// add adds a file if it exists.
func (u *imageUse) add(path string) {
	if err := u.files.add(path); err != nil {
		u.unknown = append(u.unknown, err)
	}
}

// addImage adds an image of this name, if it was downloaded.
func (u *imageUse) addImage(dir string, image *v1alpha1.Image) {
	if image != nil && image.Sha256 != "" {
		u.add(filepath.Join(dir, image.Sha256))
	}
}

// addRecord adds the image that a record says a disk to have; nil means none. The disk may not be that of the record yet.
func (u *imageUse) addRecord(disk string, base *qemu.Image, isComplete bool) {
	if base != nil {
		u.add(base.Path)
	}
	if isComplete {
		u.recorded[disk] = true
	}
}

// addBacking adds the backing file of a disk, if both exist. It may be any image if the disk does not say which it is, and no record does.
func (u *imageUse) addBacking(disk string) {
	backing, err := readBacking(disk)
	switch {
	case errors.Is(err, fs.ErrNotExist), backing == "" && err == nil:
	case err != nil && u.recorded[disk]:
		u.damaged = append(u.damaged, fmt.Errorf("the disk %s is damaged: restore it: read its backing file: %w", disk, err))
	case err != nil:
		u.unknown = append(u.unknown, fmt.Errorf("no image is removed, because it is not known which one the disk %s needs: restore or remove it: read its backing file: %w", disk, err))
	case filepath.IsAbs(backing):
		u.add(backing)
	default:
		u.add(filepath.Join(filepath.Dir(disk), backing))
	}
}

// imagesInUse returns the images that machines use or are about to use: those in their definitions, and the backing files
// of all disks, because a disk may be retained or have an unreadable definition. The order matters: a disk is retained
// before its machine is removed.
func (d *Driver) imagesInUse() *imageUse {
	used := &imageUse{recorded: map[string]bool{}}
	for _, m := range d.all() {
		m.addImages(used)
	}
	d.addVirtualDiskImages(used)
	d.addSnapshotImages(used)
	d.addImportedFiles(used)
	for _, dir := range []string{d.machinesDir(), d.disksDir(), d.snapshotsDir()} {
		folders, err := os.ReadDir(dir)
		if err != nil {
			used.unknown = append(used.unknown, err)
		}
		for _, folder := range folders {
			used.addBacking(filepath.Join(dir, folder.Name(), diskFile))
			disks, err := dataDisks(filepath.Join(dir, folder.Name()))
			if err != nil {
				used.unknown = append(used.unknown, err)
			}
			for _, path := range disks {
				used.addBacking(path)
			}
		}
	}
	retained, err := RetainedDisks(d.options.StateDir)
	if err != nil {
		used.unknown = append(used.unknown, err)
	}
	for _, disk := range retained {
		used.addBacking(disk.Path)
	}
	return used
}

// addImages adds the images of a machine. While its disks are being replaced, those in its definition are not certain.
func (m *machine) addImages(used *imageUse) {
	m.mu.Lock()
	def := m.def
	records := maps.Clone(def.DiskRecords)
	m.mu.Unlock()
	dir := m.d.imagesDir()
	for name, record := range records {
		used.addRecord(m.path(diskPath(name)), record.Base, record.Created && record.VirtualDiskUID == "" && def.Restoring == nil)
	}
	used.addRecord(m.path(diskFile), def.Base, def.Created && def.Restoring == nil)
	used.addImage(dir, def.CDROM)
	for _, disk := range def.Disks {
		used.addImage(dir, disk.Image)
	}
	for _, file := range namedFiles(def.Image) {
		used.add(file.path)
	}
	used.addImage(dir, def.Image)
}

// addVirtualDiskImages adds the images of VirtualDisks.
func (d *Driver) addVirtualDiskImages(used *imageUse) {
	for _, v := range d.allDisks() {
		def := v.definition()
		used.addRecord(v.path(), def.Base, def.Created)
		used.addImage(d.imagesDir(), def.Image)
	}
}

// addSnapshotImages adds the images of snapshots.
func (d *Driver) addSnapshotImages(used *imageUse) {
	d.mu.Lock()
	snapshots := slices.Collect(maps.Values(d.snapshots))
	d.mu.Unlock()
	for _, s := range snapshots {
		s.mu.Lock()
		def := s.def
		s.mu.Unlock()
		for _, disk := range def.Disks {
			used.addRecord(s.path(disk.Name), disk.Base, def.Taken)
		}
	}
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
