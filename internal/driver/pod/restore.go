package pod

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// RestoreServer implements backend.SnapshotStore. The record comes first, so that nothing starts the machine meanwhile.
func (d *Driver) RestoreServer(ctx context.Context, id backend.Identity, restore backend.Restore) error {
	if err := d.check(); err != nil {
		return err
	}
	secret, rec, pod, err := d.current(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case restore.Token == "":
		return d.withdrawRestore(ctx, secret, rec)
	case rec.Restored == restore.Token:
		return nil
	case rec.Fill != nil && rec.Fill.Token == "":
		return fmt.Errorf("machine %s: %w", id.Name, backend.ErrNotCreated)
	case pod != nil && !isOver(pod):
		return fmt.Errorf("machine %s is on: it is restored when it is off", id.Name)
	case rec.Fill != nil && rec.Fill.Token == restore.Token:
		return d.beginFill(ctx, secret, rec)
	case rec.Fill != nil:
		// An earlier request that was not withdrawn in time comes to its end.
		if err := d.awaitFill(ctx, rec); err != nil {
			return err
		}
	}
	of, snapshot, err := d.findSnapshot(ctx, id.Namespace, restore.Snapshot.UID)
	if err != nil {
		return err
	}
	rec.FailedRestore = nil
	if rec.Fill, err = newRestore(&rec.Machine, of, snapshot, restore); err != nil {
		rec.FailedRestore = &failedRestore{Token: restore.Token, Message: err.Error()}
	}
	if err := d.writeRecord(ctx, secret, rec, seedOf(secret)); err != nil {
		return err
	}
	step("restore recorded")
	if rec.Fill == nil {
		return nil
	}
	return d.beginFill(ctx, secret, rec)
}

// withdrawRestore ends a restore that has not begun. One that has begun comes to its end.
func (d *Driver) withdrawRestore(ctx context.Context, secret *corev1.Secret, rec *record) error {
	if rec.Fill == nil || rec.Fill.Token == "" {
		return nil
	}
	if err := d.awaitFill(ctx, rec); err != nil {
		return err
	}
	rec.Fill = nil
	return d.writeRecord(ctx, secret, rec, seedOf(secret))
}

// newRestore returns the fill that restores a machine from a snapshot; a nil record means that there is none.
func newRestore(machine *backend.Machine, id backend.SnapshotIdentity, snapshot *snapshotRecord, restore backend.Restore) (*fill, error) {
	switch {
	case snapshot == nil:
		return nil, fmt.Errorf("the volume with the snapshot %s is gone", restore.Snapshot.Name)
	case snapshot.Machine.UID != machine.UID:
		return nil, fmt.Errorf("the snapshot %s is of another machine", id.Name)
	}
	wanted := &fill{Snapshot: id, Token: restore.Token}
	for _, disk := range snapshot.Disks {
		if hasClaimed(machine, disk.Name) {
			wanted.Disks = append(wanted.Disks, disk.Name)
		}
	}
	if len(wanted.Disks) == 0 {
		return nil, fmt.Errorf("the machine has none of the disks in the snapshot %s any more", id.Name)
	}
	switch {
	case !restore.Memory || snapshot.Memory == nil:
	case !slices.EqualFunc(disksOf(machine), disksOf(&snapshot.Memory.Started), func(a, b backend.Disk) bool { return a.Name == b.Name }):
		wanted.NoMemory = "the machine does not have the disks that it had"
	default:
		wanted.Memory = snapshot.Memory
	}
	return wanted, nil
}
