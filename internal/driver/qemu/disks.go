package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// maxDisks is the maximum number of disks of a machine besides the root disk.
const maxDisks = 16

// rootDiskField is the field of the size of the root disk.
const rootDiskField = "spec.resource.rootDisk"

// diskForm matches the names of disks, which become names of files and of devices in QEMU. A serial number of virtio has at
// most 20 bytes.
var diskForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// diskRecord is a disk of spec.disks in the definition of its machine. It is written before the file of the disk exists, and
// removed after the file.
type diskRecord struct {
	backend.Disk
	// VirtualDiskUID is the UID of the VirtualDisk; empty if the disk is none. The file is then that of the VirtualDisk, and
	// Created means that the machine has claimed it.
	VirtualDiskUID types.UID `json:"virtualDiskUID,omitempty"`
	// Base is the image of the disk, and its format.
	Base *qemu.Image `json:"base,omitempty"`
	// Created means that the file is complete.
	Created bool `json:"created,omitempty"`
	// Removing means that the file is being removed: it may be gone, and is not used again.
	Removing bool `json:"removing,omitempty"`
}

// file returns the file of the disk of a machine with a folder, given the directory of VirtualDisks.
func (r *diskRecord) file(folder, disksDir string) string {
	if r.VirtualDiskUID != "" {
		return filepath.Join(disksDir, string(r.VirtualDiskUID), diskFile)
	}
	return filepath.Join(folder, diskPath(r.Name))
}

// diskPath returns the name of the file of a disk in the folder of its machine.
func diskPath(name string) string { return "disk-" + name + ".qcow2" }

// dataDisks returns the files of all disks of spec.disks in the folder of a machine, by the names of the disks.
func dataDisks(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, diskPath("*")))
	found := map[string]string{}
	for _, path := range paths {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "disk-"), ".qcow2")
		if diskForm.MatchString(name) {
			found[name] = path
		}
	}
	return found, err
}

// validateDisks rejects disks that this driver cannot use. The schema checks the same.
func validateDisks(disks []backend.Disk) error {
	names := map[string]bool{"root": true, "seed": true, "cdrom": true}
	virtual := map[string]bool{}
	for i := range disks {
		name := disks[i].Name
		switch {
		case virtual[disks[i].VirtualDisk]:
			return &backend.FieldError{Field: "spec.disks", Message: fmt.Sprintf("the VirtualDisk %q is used twice", disks[i].VirtualDisk)}
		case !diskForm.MatchString(name):
			return &backend.FieldError{Field: "spec.disks", Message: fmt.Sprintf("%q is not a name of a disk: use at most 20 lower-case letters, digits and hyphens", name)}
		case names[name]:
			return &backend.FieldError{Field: "spec.disks", Message: fmt.Sprintf("the name %q is reserved or used twice", name)}
		}
		names[name] = true
		if disks[i].VirtualDisk != "" {
			virtual[disks[i].VirtualDisk] = true
		}
	}
	if len(disks) > maxDisks {
		return &backend.FieldError{Field: "spec.disks", Message: fmt.Sprintf("a machine has at most %d", maxDisks)}
	}
	return nil
}

// sameDisks reports whether two lists have the same disks for a guest.
func sameDisks(a, b []backend.Disk) bool {
	return slices.EqualFunc(a, b, func(x, y backend.Disk) bool {
		x.Retain, y.Retain = false, false
		return reflect.DeepEqual(x, y)
	})
}

// diskError is an error of a disk.
type diskError struct {
	name string
	err  error
}

func (e *diskError) Error() string { return "spec.disks[" + e.name + "]: " + e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// prepareDisks creates and grows the files of disks of a machine that is off, and removes those of all others. m.files is held.
func (m *machine) prepareDisks(ctx context.Context, disks []backend.Disk, progress func(string)) error {
	var errs []error
	for _, name := range m.obsoleteDisks(disks) {
		if err := m.discardDisk(name); err != nil {
			errs = append(errs, &diskError{name, err})
		}
	}
	for _, disk := range disks {
		err := m.prepareDisk(ctx, disk, progress)
		if notFree := (*notFreeError)(nil); errors.As(err, &notFree) {
			continue // it is plugged as soon as it is free
		}
		if err != nil {
			errs = append(errs, &diskError{disk.Name, err})
		}
	}
	return errors.Join(errs...)
}

// obsoleteDisks returns the names of the recorded disks that are not among disks.
func (m *machine) obsoleteDisks(disks []backend.Disk) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.def.DiskRecords)) {
		record := m.def.DiskRecords[name]
		i := slices.IndexFunc(disks, func(disk backend.Disk) bool { return disk.Name == name })
		if i < 0 || record.Removing || !disks[i].Continues(&record.Disk) {
			names = append(names, name)
		}
	}
	return names
}

// prepareDisk creates and grows the file of a disk that QEMU does not have. m.files is held.
func (m *machine) prepareDisk(ctx context.Context, disk backend.Disk, progress func(string)) error {
	if disk.VirtualDisk != "" {
		return m.prepareVirtualDisk(ctx, disk)
	}
	if err := m.createDataDisk(ctx, disk, progress); err != nil {
		return err
	}
	if err := giveFile(m.path(diskPath(disk.Name)), m.user()); err != nil {
		return fmt.Errorf("change the owner of the disk to the user of the machine: %w", err)
	}
	return m.growDisk(ctx, diskPath(disk.Name), disk.SizeBytes)
}

// createDataDisk records a disk, and creates its file if there is none. m.files is held.
func (m *machine) createDataDisk(ctx context.Context, disk backend.Disk, progress func(string)) error {
	record := diskRecord{Disk: disk}
	if before, found := m.diskRecord(disk.Name); found {
		record.Base, record.Created = before.Base, before.Created
	}
	if err := m.recordDisk(record); err != nil {
		return err
	}
	step("disk of spec.disks recorded")
	name := diskPath(disk.Name)
	if record.Created {
		return checkFound(m.path(name), "or remove the disk from spec.disks")
	}
	var err error
	if disk.Image != nil {
		if record.Base, err = m.d.resolveImage(ctx, m.id.Namespace, disk.Image, progress); err != nil {
			return err
		}
	}
	if err := m.createDisk(ctx, name, "spec.disks[].size", record.Base, disk.SizeBytes); err != nil {
		return err
	}
	step("disk of spec.disks created")
	record.Created = true
	return m.recordDisk(record)
}

// discardDisk removes or retains the file of a disk that QEMU does not have, and its record. m.files is held.
func (m *machine) discardDisk(name string) error {
	record, found := m.diskRecord(name)
	if !found {
		return nil
	}
	record.Removing = true
	if err := m.recordDisk(record); err != nil {
		return err
	}
	step("removal of a disk recorded")
	if record.VirtualDiskUID != "" {
		if v := m.d.findDisk(record.VirtualDiskUID); v != nil {
			if err := v.release(m.id.UID); err != nil {
				return err
			}
		}
		return m.forgetDisk(name)
	}
	path := m.path(diskPath(name))
	if record.Retain && record.Created {
		if err := m.retainDisk(path, name); err != nil {
			return err
		}
	}
	for _, path := range []string{path, path + ".new"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the disk: %w", err)
		}
	}
	if err := atomicfile.SyncDir(m.dir); err != nil {
		return fmt.Errorf("remove the disk: %w", err)
	}
	step("disk of spec.disks removed")
	return m.forgetDisk(name)
}

// forgetDisk removes the record of a disk.
func (m *machine) forgetDisk(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.def.DiskRecords, name)
	return m.def.write(m.dir)
}

// diskRecord returns the record of a disk, if there is one.
func (m *machine) diskRecord(name string) (diskRecord, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, found := m.def.DiskRecords[name]
	return record, found
}

// recordDisk writes the record of a disk, unless it is the same already.
func (m *machine) recordDisk(record diskRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, found := m.def.DiskRecords[record.Name]
	if found && reflect.DeepEqual(before, record) {
		return nil
	}
	if m.def.DiskRecords == nil {
		m.def.DiskRecords = map[string]diskRecord{}
	}
	m.def.DiskRecords[record.Name] = record
	if err := m.def.write(m.dir); err != nil {
		if found {
			m.def.DiskRecords[record.Name] = before
		} else {
			delete(m.def.DiskRecords, record.Name)
		}
		return fmt.Errorf("record the disk: %w", err)
	}
	return nil
}

// retainDisk moves the file of a disk of spec.disks into retainedDir. A machine may retain several disks of the same name,
// one after the other.
func (m *machine) retainDisk(path, name string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir := filepath.Join(m.d.retainedDir(), m.id.Namespace, m.id.Name)
	// Nobody else uses this UID, so the name stays free.
	target := filepath.Join(dir, fmt.Sprintf("%s.%s.qcow2", m.id.UID, name))
	for n := 2; ; n++ {
		if _, err := os.Lstat(target); err != nil {
			break
		}
		target = filepath.Join(dir, fmt.Sprintf("%s.%s.%d.qcow2", m.id.UID, name, n))
	}
	if err := retainFile(path, target); err != nil {
		return fmt.Errorf("retain the disk %s: %w", name, err)
	}
	step("disk of spec.disks retained")
	return nil
}

// retainDisks retains the disks of spec.disks that outlive the machine. The files decide, because the definition may be
// unreadable. A disk that was removed from the spec, and that the guest has not released, has its own policy.
func (m *machine) retainDisks(options backend.DeleteOptions) error {
	files, err := dataDisks(m.dir)
	if err != nil {
		return err
	}
	obsolete := m.obsoleteDisks(m.wantedDisks())
	for name, path := range files {
		record, recorded := m.diskRecord(name)
		keep := options.KeepAll || slices.Contains(options.KeepDisks, name)
		if slices.Contains(obsolete, name) {
			keep = options.KeepAll || record.Retain
		}
		if recorded && !record.Created {
			keep = false // nobody has used it
		}
		if !keep {
			continue
		}
		if err := m.retainDisk(path, name); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) wantedDisks() []backend.Disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.def.Disks)
}
