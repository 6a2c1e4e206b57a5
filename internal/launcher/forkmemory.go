package launcher

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// Identity identifies a machine.
type Identity struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// identity returns that of the machine.
func (d *Definition) identity() Identity {
	return Identity{UID: d.UID, Namespace: d.Namespace, Name: d.Name}
}

// forkMemory makes a new machine one that is asleep with the memory in the snapshot, when it has its disks. That is done once, even if a Pod comes
// too late that an earlier manager has made: the machine may have run since. If the machine boots, what an earlier attempt has left is of
// another epoch.
func (f *filler) forkMemory(ctx context.Context) error {
	if f.fill.Memory == nil {
		return nil
	}
	record := filepath.Join(f.dirs.Disk, restoreFile)
	if last, err := readRestoring(record); err != nil || last.Token == f.fill.Epoch {
		return err
	}
	err := discardMemory(f.dirs.Disk)
	if err == nil {
		err = f.copyMemory(ctx)
	}
	if err != nil {
		f.removeCopies(f.fill.Disks)
		return err
	}
	if err := f.restoreMemory(f.fill.Disks, &savedMemory{Memory: *f.fill.Memory, Epoch: f.fill.Epoch, GuestOf: f.fill.Of}); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(record, &restoring{Token: f.fill.Epoch}, atomicfile.Durable); err != nil {
		return fmt.Errorf("record that the machine has the memory of the snapshot: %w", err)
	}
	step("fork recorded")
	return nil
}
