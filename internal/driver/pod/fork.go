package pod

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// createFork creates a machine of a snapshot. It is complete when its disks are copied; then it needs the snapshot no longer.
func (d *Driver) createFork(ctx context.Context, given backend.Machine) error {
	secret, err := d.readSecret(ctx, d.client, given.Identity)
	if err != nil {
		return err
	}
	rec := &record{}
	if secret != nil {
		if rec, err = recordOf(secret); err != nil || rec.Fill == nil || rec.Fill.Token != "" {
			return err // it is complete
		}
		if err := d.checkAttempt(ctx, rec, given.Snapshot); err != nil {
			return err
		}
	}
	id, snapshot, err := d.findSnapshot(ctx, given.Namespace, given.Snapshot)
	if err != nil {
		return err
	}
	if snapshot == nil {
		return &backend.FieldError{Field: "spec.image.snapshot", Message: fmt.Sprintf("the namespace %s has no volume with the snapshot; machines of the driver "+
			"pod are created from snapshots in their own namespace, because no Pod can use the volumes of another one", given.Namespace)}
	}
	machine, disks, err := newFork(given, snapshot)
	if err != nil {
		return err
	}
	claims, err := d.claims(ctx, machine.Identity)
	if err != nil {
		return err
	}
	// An earlier attempt may have had other disks, or smaller ones.
	if err := d.makeClaims(ctx, &machine, &backend.Machine{}, claims); err != nil {
		return err
	}
	fitted := machine
	if _, err := d.growClaims(ctx, &fitted, claims); err != nil {
		return err
	}
	rec.Machine, rec.Fill, rec.Started, rec.SeedSum, rec.Epoch = machine, nil, nil, "", ""
	if len(disks) > 0 {
		rec.Fill = &fill{Snapshot: id, Disks: disks}
		if rec.Fill.NoMemory = snapshot.differsFrom(&fitted); rec.Fill.NoMemory == "" && snapshot.Memory != nil {
			// The epoch is another one than that of a machine that was stopped before its first run.
			rec.Fill.Memory, rec.Started, rec.SeedSum, rec.Epoch = snapshot.Memory, &fitted, sumOf(machine.Seed), string(id.UID)
		}
	}
	if secret == nil {
		err = d.createSecret(ctx, rec, machine.Seed)
	} else {
		err = d.writeRecord(ctx, secret, rec, machine.Seed)
	}
	if err != nil || rec.Fill == nil {
		return err
	}
	return d.beginFill(ctx, secret, rec)
}

// checkAttempt returns an error if the earlier attempt to make a machine of a snapshot, which a record describes, does not let another one begin.
func (d *Driver) checkAttempt(ctx context.Context, rec *record, snapshot types.UID) error {
	// The record has to say what a Pod does.
	if err := d.awaitFill(ctx, rec); err != nil {
		return err
	}
	if of := rec.Fill.Snapshot; of.UID != snapshot { // there may be disks of that one
		return &backend.FieldError{Field: "spec.image.snapshot", Message: fmt.Sprintf("an earlier attempt to make the machine was from another snapshot %s, which is gone: "+
			"delete the VirtualMachine and create it again", of.Name)}
	}
	return nil
}

// findSnapshot returns a snapshot in a namespace; a nil record if it does not have it, or it is not taken or being deleted.
func (d *Driver) findSnapshot(ctx context.Context, namespace string, uid types.UID) (backend.SnapshotIdentity, *snapshotRecord, error) {
	id := backend.SnapshotIdentity{UID: uid, Namespace: namespace}
	claim, err := d.snapshotClaim(ctx, id)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return id, nil, err
	}
	rec, err := d.snapshotRecord(ctx, d.client, claim)
	return snapshotOf(claim), rec, err
}

// newFork returns a new machine with what the machine of a snapshot booted, and the names of its disks that the snapshot has. The error
// is a backend.FieldError if one is too small.
func newFork(machine backend.Machine, snapshot *snapshotRecord) (backend.Machine, []string, error) {
	machine.Image = snapshot.Image
	var names []string
	for _, disk := range snapshot.Disks {
		field, size := "spec.resource.rootDisk", machine.DiskBytes
		if disk.Name != rootDisk {
			i := slices.IndexFunc(machine.Disks, func(own backend.Disk) bool { return own.Name == disk.Name })
			if i < 0 {
				continue
			}
			field, size = "spec.disks", machine.Disks[i].SizeBytes
		} else if size == 0 {
			machine.DiskBytes, size = disk.VirtualBytes, disk.VirtualBytes
		}
		if size < disk.VirtualBytes {
			return machine, nil, &backend.FieldError{Field: field, Message: fmt.Sprintf("the disk %s of the snapshot has %d bytes, and that of the machine %d: make it larger",
				disk.Name, disk.VirtualBytes, size)}
		}
		names = append(names, disk.Name)
	}
	return machine, names, nil
}

// differsFrom returns why a new machine does not go on with the memory in the snapshot; empty if it does, or there is none.
func (r *snapshotRecord) differsFrom(machine *backend.Machine) string {
	if r.Memory == nil {
		return ""
	}
	now, then := newDefinition(machine), newDefinition(&r.Memory.Started)
	sizes := map[string]int64{}
	for _, disk := range r.Disks {
		sizes[disk.Name] = disk.VirtualBytes
	}
	switch {
	case r.Image != nil:
		return savedmemory.NoGuestForks
	case !now.CanSleep():
		return "its disks have no volumes that it keeps, and the memory would be in that of its root disk"
	case now.CPUs != then.CPUs || now.CPUModel != then.CPUModel:
		return "it has other processors than the machine in the snapshot"
	case now.MemoryBytes != then.MemoryBytes:
		return fmt.Sprintf("it has %d MiB of memory, and the machine in the snapshot had %d MiB when it was started", now.MemoryBytes>>20, then.MemoryBytes>>20)
	case now.Display != then.Display:
		return "only one of it and the machine in the snapshot has a display"
	}
	return machine.DisksDifferFrom(sizes)
}

// isOfSnapshot reports whether a machine, as its spec describes it, is made of a snapshot.
func isOfSnapshot(machine *backend.Machine) bool {
	return machine.Image != nil && machine.Image.Snapshot != ""
}

// machineIn returns what is known of a machine of a snapshot from its Pod: the image, and the size of the root disk.
func machineIn(pod *corev1.Pod) backend.Machine {
	definition, _ := definitionOf(pod) // without one, it has the default guest and no root disk
	machine, agent := backend.Machine{DiskBytes: definition.DiskBytes, Hash: "from its Pod"}, ptr.To(!definition.NoAgent)
	if definition.ImageURL != "" {
		machine.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: definition.ImageURL, Sha256: definition.ImageSHA256, Format: definition.ImageFormat}, Agent: agent}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Image != nil && volume.Name == "image" {
			machine.Image = &v1alpha1.Image{Container: volume.Image.Reference, Agent: agent}
		}
	}
	return machine
}
