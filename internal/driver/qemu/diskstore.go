package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// virtualDiskSizeField is the field of the size of a VirtualDisk.
const virtualDiskSizeField = "spec.size"

// WatchDisks implements backend.DiskStore.
func (d *Driver) WatchDisks(notify func(backend.DiskIdentity)) { d.diskWatcher.Watch(notify) }

// ObserveDisk implements backend.DiskStore.
func (d *Driver) ObserveDisk(_ context.Context, id backend.DiskIdentity) (backend.DiskState, error) {
	v := d.findDisk(id.UID)
	if v == nil {
		return backend.DiskState{}, fmt.Errorf("disk %s: %w", id.Name, backend.ErrNotFound)
	}
	v.mu.Lock()
	state := backend.DiskState{
		Created: v.def.Created && !v.def.Removing, Busy: v.work.Busy(), AttachedTo: v.def.Owner,
	}
	_, state.Progress = v.work.State()
	state.FailedAt, state.Failure = v.work.Failure(backend.TaskCreate)
	v.mu.Unlock()
	if !state.Created {
		return state, nil
	}
	usage, err := measureDisk(v.path())
	if errors.Is(err, fs.ErrNotExist) {
		state.Lost = fmt.Sprintf("the file %s is missing: restore it, or delete the VirtualDisk", v.path())
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("measure the disk %s: %w", id.Name, err)
	}
	state.SizeBytes, state.AllocatedBytes = usage.VirtualBytes, usage.AllocatedBytes
	return state, nil
}

// EnsureDisk implements backend.DiskStore.
func (d *Driver) EnsureDisk(_ context.Context, disk backend.VirtualDisk) error {
	if err := checkUID(disk.UID); err != nil {
		return err
	}
	if err := d.checkDiskFiles(disk); err != nil {
		return err
	}
	v, err := d.addDisk(disk)
	if err != nil {
		return err
	}
	v.mu.Lock()
	created, busy, grows := v.def.Created, v.work.Busy(), disk.SizeBytes > v.def.SizeBytes
	owner := v.def.Owner
	_, failure := v.work.Failure(backend.TaskCreate)
	if created && grows && !v.def.Removing {
		def := v.def
		def.SizeBytes = disk.SizeBytes
		err = v.write(&def)
	}
	v.mu.Unlock()
	switch {
	case err != nil, busy:
		return err
	case !created:
		return v.beginCreate(disk)
	case owner != nil && (grows || v.isSmall()):
		step("growth of a virtual disk recorded")
		d.wakeMachines(v) // its machine grows it
	case owner == nil && (grows || failure != nil || v.isSmall()):
		v.begin("the disk is being grown", v.grow)
	}
	return nil
}

// checkDiskFiles rejects a disk whose image is not allowed.
func (d *Driver) checkDiskFiles(disk backend.VirtualDisk) error {
	if disk.Image == nil {
		return nil
	}
	return d.checkFiles(disk.Image)
}

// isSmall reports whether the file is smaller than specified.
func (v *virtualDisk) isSmall() bool {
	usage, err := measureDisk(v.path())
	return err == nil && usage.VirtualBytes < v.definition().SizeBytes
}

// addDisk returns the disk of a VirtualDisk. It records it if there is none.
func (d *Driver) addDisk(disk backend.VirtualDisk) (*virtualDisk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("driver qemu is closed: %w", backend.ErrUnavailable)
	}
	if v := d.disks[disk.UID]; v != nil {
		return v, nil
	}
	v := &virtualDisk{d: d, id: disk.DiskIdentity, dir: filepath.Join(d.disksDir(), string(disk.UID))}
	for _, name := range []string{diskDefinitionFile, diskFile} {
		if _, err := os.Lstat(filepath.Join(v.dir, name)); err == nil {
			return nil, fmt.Errorf("the definition %s is missing or unreadable, and the disk may have data: restore it, or remove the folder",
				filepath.Join(v.dir, diskDefinitionFile))
		}
	}
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the disk %s: %w", disk.Name, err)
	}
	if err := v.write(&diskDefinition{VirtualDisk: disk, CreatedAt: time.Now()}); err != nil {
		return nil, err
	}
	step("virtual disk defined")
	d.disks[disk.UID] = v
	return v, nil
}

// begin starts the creation or growth of the disk in the background. It returns false if that is not possible now.
func (v *virtualDisk) begin(progress string, work func(ctx context.Context) error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.deleting || v.readers > 0 || v.def.Created && v.def.Owner != nil {
		return false
	}
	return nil == v.work.Begin(v.d.ctx, &v.d.tasks, operation.Work{
		Kind: backend.TaskCreate, Progress: progress, Do: work, Changed: func() { v.d.notifyDisk(v) },
	})
}

// beginCreate begins to create the file of the disk.
func (v *virtualDisk) beginCreate(disk backend.VirtualDisk) error {
	v.mu.Lock()
	def := v.def
	def.VirtualDisk = disk // the size may have changed since the last attempt
	err := v.write(&def)
	v.mu.Unlock()
	if err != nil {
		return err
	}
	if disk.From == "" {
		v.begin("the disk is being created", v.create)
		return nil
	}
	source := v.d.namedDisk(disk.Cluster, disk.Namespace, disk.From)
	if source == nil || source == v {
		return fmt.Errorf("%w: there is no VirtualDisk %s in the namespace %s on this host: create it", backend.ErrSourceMissing, disk.From, disk.Namespace)
	}
	if err := source.beginRead(); err != nil {
		return err
	}
	begun := v.begin(fmt.Sprintf("the disk %s is being copied", disk.From), func(ctx context.Context) error {
		defer source.endRead()
		return v.clone(ctx, source)
	})
	if !begun {
		source.endRead()
	}
	return nil
}

// create creates the file from an image, or empty.
func (v *virtualDisk) create(ctx context.Context) error {
	def := v.definition()
	if def.Image != nil {
		base, err := v.d.resolveImage(ctx, v.id.Namespace, def.Image, v.progress)
		if err != nil {
			return err
		}
		def.Base = base
	}
	if err := os.RemoveAll(v.path()); err != nil { // of an attempt that was not recorded
		return err
	}
	if err := v.d.createFile(ctx, v.path(), v.d.keeper(), virtualDiskSizeField, def.Base, def.SizeBytes); err != nil {
		return err
	}
	step("virtual disk created")
	return v.complete(def.Base)
}

// complete records that the file is complete.
func (v *virtualDisk) complete(base *qemu.Image) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	def := v.def
	def.Base, def.Created = base, true
	if err := v.write(&def); err != nil {
		return err
	}
	step("virtual disk complete")
	return nil
}

// grow grows the file of a disk that no machine has.
func (v *virtualDisk) grow(ctx context.Context) error {
	def := v.definition()
	usage, err := measureDisk(v.path())
	if err != nil || def.SizeBytes <= usage.VirtualBytes {
		return err
	}
	if err := v.d.growFile(ctx, v.path(), v.d.keeper(), def.SizeBytes); err != nil {
		return err
	}
	step("virtual disk grown")
	return nil
}

// progress reports the progress of the work.
func (v *virtualDisk) progress(text string) {
	if v.work.SetProgress(text) {
		v.d.diskWatcher.Notify(v.id)
	}
}

// DeleteDisk implements backend.DiskStore.
func (d *Driver) DeleteDisk(_ context.Context, id backend.DiskIdentity, retain bool) error {
	v := d.findDisk(id.UID)
	if v == nil {
		return d.deleteUnknownDisk(id)
	}
	if owner := v.definition().Owner; owner != nil && d.isGone(owner.UID) {
		if err := v.release(owner.UID); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.deleting = true
	var err error
	switch def := v.def; {
	case def.Owner != nil:
		err = fmt.Errorf("%w: the machine %s has it", backend.ErrDiskInUse, def.Owner.Name)
	case v.work.Cancel():
		err = backend.ErrInProgress
	case v.readers > 0:
		err = fmt.Errorf("it is being cloned: %w", backend.ErrInProgress)
	case !def.Removing:
		def.Removing = true
		err = v.write(&def)
	}
	v.mu.Unlock()
	if err != nil {
		return err
	}
	step("removal of a virtual disk recorded")
	if retain && v.definition().Created {
		if err := v.retain(); err != nil {
			return err
		}
	}
	if err := removeFolder(v.dir); err != nil {
		return err
	}
	step("virtual disk removed")
	d.mu.Lock()
	delete(d.disks, id.UID)
	d.mu.Unlock()
	d.notifyDisk(v)
	return nil
}

// deleteUnknownDisk removes the folder of a disk whose definition is unreadable.
func (d *Driver) deleteUnknownDisk(id backend.DiskIdentity) error {
	if checkUID(id.UID) != nil {
		return nil // such a disk was never created
	}
	dir := filepath.Join(d.disksDir(), string(id.UID))
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the definition %s is unreadable, so it is not known whether a machine has the disk: restore it, or remove the folder",
		filepath.Join(dir, diskDefinitionFile))
}

// retain moves the file into retainedDir.
func (v *virtualDisk) retain() error {
	if _, err := os.Lstat(v.path()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to := filepath.Join(v.d.retainedDir(), v.id.Namespace, v.id.Name, string(v.id.UID)+".qcow2")
	if err := retainFile(v.path(), to); err != nil {
		return fmt.Errorf("retain the disk %s: %w", v.id.Name, err)
	}
	step("virtual disk retained")
	return nil
}

// Disks implements backend.DiskStore.
func (d *Driver) Disks(context.Context) ([]backend.StoredDisk, error) {
	return StoredDisks(d.options.StateDir)
}

// StoredDisks returns the disks of VirtualDisks in a state directory, which need not exist, sorted.
func StoredDisks(stateDir string) ([]backend.StoredDisk, error) {
	entries, err := os.ReadDir(disksDir(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	var all []backend.StoredDisk
	for _, entry := range entries {
		dir := filepath.Join(disksDir(stateDir), entry.Name())
		def, err := readDiskDefinition(dir)
		if err != nil || !def.Created || def.Removing {
			continue // it is being created or removed, or Open has reported it
		}
		disk := backend.StoredDisk{Namespace: def.Namespace, Name: def.Name, Path: filepath.Join(dir, diskFile)}
		if def.Owner != nil {
			disk.AttachedTo = def.Owner.Name
		}
		usage, err := measureDisk(disk.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed just now, or is lost, which its condition reports
		}
		if err != nil {
			return nil, fmt.Errorf("measure the disk %s/%s: %w", def.Namespace, def.Name, err)
		}
		disk.AllocatedBytes, disk.VirtualBytes = usage.AllocatedBytes, usage.VirtualBytes
		all = append(all, disk)
	}
	slices.SortFunc(all, func(a, b backend.StoredDisk) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all, nil
}
