package pod

import (
	"fmt"
	"slices"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// maxSeed is the maximum size of cloud-init data: it is in a Secret together with the record, which has at most 1 MiB.
const maxSeed = 512 << 10

// Validate rejects what this driver cannot do, regardless of the cluster. The error is a *backend.FieldError.
func Validate(machine *backend.Machine) error {
	wrong := func(field, message string) error { return &backend.FieldError{Field: field, Message: message} }
	if image := machine.Image; image != nil && image.Container == "" && image.URL == "" && image.Snapshot == "" {
		return wrong("spec.image", "the driver pod boots the default guest, a snapshot, or an image from a URL or in a container image; set spec.image.url, "+
			"spec.image.container or spec.image.snapshot")
	}
	hasRoot := machine.DiskBytes > 0 || isOfSnapshot(machine) // a snapshot has the default
	if machine.Image != nil && !hasRoot {
		return wrong("spec.resource.rootDisk", "the driver pod has the root disk in a PersistentVolumeClaim, which needs a size; set it")
	}
	if machine.Network != nil {
		return wrong("spec.network", "the driver pod has no rules for networks; use a NetworkPolicy")
	}
	const missing = "the driver pod does not have this yet; remove the field, or use the driver qemu"
	if machine.CDROM != nil {
		return wrong("spec.cdrom", missing)
	}
	if machine.Firmware != "" {
		return wrong("spec.firmware", missing)
	}
	for _, disk := range machine.Disks {
		if disk.SizeBytes == 0 || disk.Image != nil || disk.VirtualDisk != "" {
			return wrong("spec.disks", fmt.Sprintf("disks of the driver pod have a size, no image, and are no VirtualDisk; change the disk %s, or use the driver qemu", disk.Name))
		}
	}
	if machine.SleepsAtShutdown {
		return wrong("spec.onHostShutdown", "machines of the driver pod are on no host; remove the field, or use the driver qemu")
	}
	const memory = "the driver pod saves the memory of machines that sleep to the PersistentVolumeClaim of their root disk; "
	canSleep := hasRoot && !machine.HasEphemeralDisks()
	if machine.SleepsOnSchedule && !canSleep {
		return wrong("spec.powerSchedule", memory+"set spec.resource.rootDisk without spec.pod.storage Ephemeral, or remove the field")
	}
	if machine.Pod.EvictionPolicy == v1alpha1.EvictionSleep && !canSleep {
		return wrong("spec.pod.evictionPolicy", memory+"set spec.resource.rootDisk without spec.pod.storage Ephemeral, or another policy")
	}
	if machine.HasEphemeralDisks() {
		if err := validateEphemeral(machine); err != nil {
			return err
		}
	}
	if machine.SleepsWhenIdle {
		return wrong("spec.idle", "the driver pod does not know which machines are idle; remove the field, or use the driver qemu")
	}
	if err := machine.RequireWholeCPUs(Name); err != nil {
		return err
	}
	if seed := machine.Seed; seed != nil && len(seed.UserData)+len(seed.NetworkData) > maxSeed {
		return wrong("spec.cloudInit", fmt.Sprintf("the driver pod has room for %d KiB of cloud-init data", maxSeed>>10))
	}
	return nil
}

// validateEphemeral rejects what a machine without claims cannot have.
func validateEphemeral(machine *backend.Machine) error {
	isKept := func(disk backend.Disk) bool { return disk.Retain }
	for _, field := range []struct {
		name    string
		isGiven bool
	}{
		{"spec.pod.storageClassName", machine.Pod.StorageClassName != ""},
		{"spec.snapshots", machine.TakesSnapshots},
		{"spec.restore", machine.IsRestored},
		{"spec.image.snapshot", isOfSnapshot(machine)},
		{"spec.disks[].deletePolicy", slices.ContainsFunc(machine.Disks, isKept)},
	} {
		if field.isGiven {
			return &backend.FieldError{Field: field.name, Message: "the disks of an ephemeral machine are in no PersistentVolumeClaims; remove the field, or spec.pod.storage"}
		}
	}
	return nil
}
