package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// notFreeError is why a machine cannot have a disk now.
type notFreeError struct {
	why string
	// owner means that another machine has it.
	owner bool
}

func (e *notFreeError) Error() string { return e.why }

// claim makes a machine the owner of the disk. It does nothing if it is already. The error is a notFreeError if the machine
// has to wait.
func (v *virtualDisk) claim(id backend.Identity) error {
	owner := v.definition().Owner
	if owner != nil && owner.UID != id.UID && v.d.isGone(owner.UID) {
		if err := v.release(owner.UID); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	name := v.id.Name
	switch owner := v.def.Owner; {
	case owner != nil && owner.UID == id.UID:
		return nil
	case owner != nil:
		return &notFreeError{why: fmt.Sprintf("waiting for the VirtualDisk %s, which the machine %s has: remove it from spec.disks there, or delete that machine", name, owner.Name), owner: true}
	case v.deleting || v.def.Removing:
		return &notFreeError{why: fmt.Sprintf("the VirtualDisk %s is being deleted", name)}
	case !v.def.Created:
		return &notFreeError{why: fmt.Sprintf("waiting for the VirtualDisk %s, which is not ready", name)}
	case v.work.Busy():
		return &notFreeError{why: fmt.Sprintf("waiting for the VirtualDisk %s, which is being grown", name)}
	case v.readers > 0:
		return &notFreeError{why: fmt.Sprintf("waiting for the VirtualDisk %s, which is being cloned", name)}
	}
	def := v.def
	def.Owner = &id
	if err := v.write(&def); err != nil {
		return err
	}
	step("virtual disk claimed")
	return nil
}

// isOwnedBy reports whether a machine has the disk.
func (v *virtualDisk) isOwnedBy(uid types.UID) bool {
	owner := v.definition().Owner
	return owner != nil && owner.UID == uid
}

// release ends the claim of a machine, if it has one. QEMU does not have the disk any more.
func (v *virtualDisk) release(uid types.UID) error {
	if !v.isOwnedBy(uid) {
		return nil
	}
	if err := giveFile(v.path(), v.d.keeper()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take the disk %s back from the user of the machine: %w", v.id.Name, err)
	}
	step("virtual disk taken back")
	v.mu.Lock()
	def := v.def
	def.Owner = nil
	err := v.write(&def)
	v.mu.Unlock()
	if err != nil {
		return err
	}
	step("virtual disk released")
	v.d.notifyDisk(v)
	return nil
}

// releaseDisks ends all claims of a machine whose process has ended.
func (d *Driver) releaseDisks(uid types.UID) error {
	var errs []error
	for _, v := range d.allDisks() {
		errs = append(errs, v.release(uid))
	}
	return errors.Join(errs...)
}

// hold excludes clones of a disk while the machine that has it is being started. It waits for those in progress.
func (v *virtualDisk) hold(ctx context.Context, progress func(string)) error {
	for {
		v.mu.Lock()
		if v.readers == 0 {
			v.holds++
			v.mu.Unlock()
			return nil
		}
		idle := v.idle
		v.mu.Unlock()
		progress(fmt.Sprintf("the VirtualDisk %s is being cloned", v.id.Name))
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryHold is hold without waiting. The error is a notFreeError.
func (v *virtualDisk) tryHold() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.readers > 0 {
		return &notFreeError{why: fmt.Sprintf("waiting for the VirtualDisk %s, which is being cloned", v.id.Name)}
	}
	v.holds++
	return nil
}

func (v *virtualDisk) unhold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.holds--
}

// holdDisks holds the disks of a machine that is being started, and returns the function that ends that.
func (m *machine) holdDisks(ctx context.Context) (func(), error) {
	var held []*virtualDisk
	end := func() {
		for _, v := range held {
			v.unhold()
		}
	}
	for _, v := range m.d.allDisks() {
		if !v.isOwnedBy(m.id.UID) {
			continue
		}
		if err := v.hold(ctx, m.progress); err != nil {
			end()
			return nil, err
		}
		held = append(held, v)
	}
	return end, nil
}

// attachDisk makes the machine the owner of the VirtualDisk of a disk, and records the disk. m.files is held. The error is a
// notFreeError if the machine has to wait.
func (m *machine) attachDisk(disk backend.Disk) (*virtualDisk, error) {
	v := m.d.namedDisk(m.id.Cluster, m.id.Namespace, disk.VirtualDisk)
	before, recorded := m.diskRecord(disk.Name)
	if recorded && before.VirtualDiskUID != "" && (v == nil || before.VirtualDiskUID != v.id.UID) {
		if old := m.d.findDisk(before.VirtualDiskUID); before.Created && (old == nil || old.isOwnedBy(m.id.UID)) {
			return nil, fmt.Errorf("the VirtualDisk %s of the machine is not on this host any more: remove the disk from spec.disks", disk.VirtualDisk)
		}
	}
	if v == nil {
		return nil, &notFreeError{why: fmt.Sprintf("waiting for the VirtualDisk %s, which is not on this host: create it, or see its condition Ready", disk.VirtualDisk)}
	}
	def := v.definition()
	// The record precedes the claim, so that a removal finds everything that the machine may have.
	record := diskRecord{Disk: disk, VirtualDiskUID: v.id.UID, Base: def.Base, Created: recorded && before.Created && before.VirtualDiskUID == v.id.UID}
	if err := m.recordDisk(record); err != nil {
		return nil, err
	}
	step("virtual disk recorded")
	isNew := !v.isOwnedBy(m.id.UID)
	if err := v.claim(m.id); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(v.path()); err != nil {
		return nil, fmt.Errorf("the file of the VirtualDisk %s is missing: restore it, or remove the disk from spec.disks: %w", v.id.Name, err)
	}
	record.Created, record.Base = true, v.definition().Base
	if err := m.recordDisk(record); err != nil {
		return nil, err
	}
	if isNew {
		m.d.notifyDisk(v)
	}
	return v, nil
}

// prepareVirtualDisk makes the machine the owner of a disk that QEMU does not have, and grows its file. m.files is held.
func (m *machine) prepareVirtualDisk(ctx context.Context, disk backend.Disk) error {
	v, err := m.attachDisk(disk)
	if err != nil {
		return err
	}
	if err := v.tryHold(); err != nil {
		return err
	}
	defer v.unhold()
	if err := giveFile(v.path(), m.user()); err != nil {
		return fmt.Errorf("change the owner of the disk to the user of the machine: %w", err)
	}
	step("virtual disk given")
	return m.growVirtualDisk(ctx, v)
}

// growVirtualDisk grows the file of a disk of a machine that QEMU does not have.
func (m *machine) growVirtualDisk(ctx context.Context, v *virtualDisk) error {
	usage, err := measureDisk(v.path())
	if size := v.definition().SizeBytes; err == nil && size > usage.VirtualBytes {
		err = m.d.growFile(ctx, v.path(), m.user(), size)
		m.d.diskWatcher.Notify(v.id)
	}
	return err
}

// ownsDisk reports whether a recorded disk can be part of the machine: its own file, or a VirtualDisk that it has claimed.
func (m *machine) ownsDisk(record *diskRecord) bool {
	if record.VirtualDiskUID == "" {
		return true
	}
	v := m.d.findDisk(record.VirtualDiskUID)
	return v != nil && record.Created && !record.Removing && v.isOwnedBy(m.id.UID)
}

// recordPath returns the file of a recorded disk.
func (m *machine) recordPath(record *diskRecord) string { return record.file(m.dir, m.d.disksDir()) }
