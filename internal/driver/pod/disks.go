package pod

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// rootDisk is the name of the root disk among the disks of a machine: no other disk may have it.
const rootDisk = "root"

// claimCheck is the time until the first look at a claim that is being deleted.
const claimCheck = 100 * time.Millisecond

// claimName returns the name of the claim of a disk.
func claimName(uid types.UID, disk string) string {
	if disk == rootDisk {
		return objectName(uid)
	}
	return objectName(uid) + "-" + disk
}

// diskOf returns the name of the disk of a claim.
func diskOf(claim *corev1.PersistentVolumeClaim) string {
	if disk := claim.Labels[labelDisk]; disk != "" {
		return disk
	}
	return rootDisk
}

// disksOf returns all disks of a machine, the root disk first.
func disksOf(machine *backend.Machine) (disks []backend.Disk) {
	if definition := newDefinition(machine); definition.HasDisk() {
		disks = append(disks, backend.Disk{Name: rootDisk, SizeBytes: machine.DiskBytes})
	}
	return append(disks, machine.Disks...)
}

// claimedDisks returns those that are in claims.
func claimedDisks(machine *backend.Machine) []backend.Disk {
	if machine.HasEphemeralDisks() {
		return nil
	}
	return disksOf(machine)
}

// hasClaimed reports whether a machine has a disk with a name in a claim.
func hasClaimed(machine *backend.Machine, name string) bool {
	return slices.ContainsFunc(claimedDisks(machine), func(disk backend.Disk) bool { return disk.Name == name })
}

// newClaim returns the claim of a disk.
func newClaim(machine *backend.Machine, disk backend.Disk) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: newMeta(machine.Identity)}
	claim.Name = claimName(machine.UID, disk.Name)
	if disk.Name == rootDisk {
		claim.Annotations[annotationMemory] = strconv.FormatInt(machine.MemoryBytes, 10)
	} else {
		claim.Labels[labelDisk], claim.Annotations[annotationPolicy] = disk.Name, string(policyOf(disk))
	}
	claim.Spec = newClaimSpec(machine, disk.SizeBytes+memoryIn(claim))
	return claim
}

// newClaimSpec returns the spec of a claim of a machine with room for disks and memory of a size.
func newClaimSpec(machine *backend.Machine, size int64) corev1.PersistentVolumeClaimSpec {
	var class *string // the default of the cluster
	if machine.Pod.StorageClassName != "" {
		class = &machine.Pod.StorageClassName
	}
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: claimSize(size)}},
	}
}

// memoryIn returns the part of a claim, in bytes, that is for the memory of a machine that is asleep; 0 without the annotation.
func memoryIn(claim *corev1.PersistentVolumeClaim) int64 {
	bytes, err := strconv.ParseInt(claim.Annotations[annotationMemory], 10, 64)
	if err != nil || bytes < 0 {
		return 0
	}
	return bytes
}

// policyOf returns what happens to a disk that is removed.
func policyOf(disk backend.Disk) v1alpha1.DiskPolicy {
	if disk.Retain {
		return v1alpha1.DiskRetain
	}
	return v1alpha1.DiskDelete
}

// claimSize returns the size, in whole MiB, of a claim for disks and memory of a size together.
func claimSize(size int64) resource.Quantity {
	mebibytes := (size+size/diskOverhead)>>20 + 1
	return *resource.NewQuantity(mebibytes<<20, resource.BinarySI)
}

// diskIn returns the size of the largest disk, in whole MiB, for a claim of a size; at least 1 MiB, because a size of 0 means none.
func diskIn(claim resource.Quantity) int64 {
	mebibytes := ((claim.Value()>>20)*diskOverhead - 1) / (diskOverhead + 1)
	return max(1, mebibytes) << 20
}

// claims returns the claims of a machine by the names of their disks.
func (d *Driver) claims(ctx context.Context, id backend.Identity) (map[string]*corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := d.client.List(ctx, &list, client.InNamespace(id.Namespace), client.MatchingLabels{labelUID: string(id.UID)}); err != nil {
		return nil, typed("list the PersistentVolumeClaims of the machine", err)
	}
	found := map[string]*corev1.PersistentVolumeClaim{}
	for i := range list.Items {
		claim := &list.Items[i]
		if disk := diskOf(claim); claim.Name == claimName(id.UID, disk) {
			found[disk] = claim
		}
	}
	return found, nil
}

// makeClaim creates the claim of a disk.
func (d *Driver) makeClaim(ctx context.Context, machine *backend.Machine, disk backend.Disk) (*corev1.PersistentVolumeClaim, error) {
	claim := newClaim(machine, disk)
	if err := d.client.Create(ctx, claim, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, typed("create the PersistentVolumeClaim "+claim.Name, err)
	}
	step("claim created")
	return claim, nil
}

// makeClaims creates the claims of disks that a machine did not have before, and sets what happens to those that are removed. A claim
// of an earlier disk that is gone is an error: the machine does not start with an empty disk instead.
func (d *Driver) makeClaims(ctx context.Context, machine, before *backend.Machine, claims map[string]*corev1.PersistentVolumeClaim) (err error) {
	for _, disk := range claimedDisks(machine) {
		claim := claims[disk.Name]
		switch {
		case claim == nil && hasClaimed(before, disk.Name):
			return errLostClaim(machine, disk.Name)
		case claim == nil:
			if claims[disk.Name], err = d.makeClaim(ctx, machine, disk); err != nil {
				return err
			}
		case claim.DeletionTimestamp != nil:
			return fmt.Errorf("the PersistentVolumeClaim %s is being deleted: %w", claim.Name, backend.ErrInProgress)
		case disk.Name != rootDisk && claim.Annotations[annotationPolicy] != string(policyOf(disk)):
			old := claim.DeepCopy()
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, annotationPolicy, string(policyOf(disk)))
			if err := d.client.Patch(ctx, claim, client.MergeFrom(old), client.FieldOwner(kube.FieldManager)); err != nil {
				return typed("annotate the PersistentVolumeClaim "+claim.Name, err)
			}
		}
	}
	return nil
}

// errLostClaim returns the error for a machine that has lost the claim of a disk.
func errLostClaim(machine *backend.Machine, disk string) error {
	return fmt.Errorf("the PersistentVolumeClaim %s/%s with the %s disk is gone; restore it, or delete the VirtualMachine",
		machine.Namespace, claimName(machine.UID, disk), disk)
}

// growClaims grows the claims of a machine, and sets the sizes of its disks to what their claims have room for. If the API server
// refuses to grow a claim, as it does for a StorageClass that cannot expand, refused says why: the machine runs without the change.
func (d *Driver) growClaims(ctx context.Context, machine *backend.Machine, claims map[string]*corev1.PersistentVolumeClaim) (refused string, err error) {
	var reasons []string
	sizes := map[string]*int64{rootDisk: &machine.DiskBytes}
	machine.Disks = slices.Clone(machine.Disks)
	for i := range machine.Disks {
		sizes[machine.Disks[i].Name] = &machine.Disks[i].SizeBytes
	}
	for _, disk := range claimedDisks(machine) {
		reason := ""
		if *sizes[disk.Name], reason, err = d.growClaim(ctx, claims[disk.Name], disk.SizeBytes); err != nil {
			return "", err
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "; "), nil
}

// growClaim grows a claim for a disk of a size. It returns the size of the disk that the claim has room for.
func (d *Driver) growClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, disk int64) (fits int64, refused string, err error) {
	size := claimSize(disk + memoryIn(claim))
	has := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if has.Cmp(size) >= 0 {
		return disk, "", nil
	}
	before := claim.DeepCopy()
	claim.Spec.Resources.Requests = map[corev1.ResourceName]resource.Quantity{corev1.ResourceStorage: size}
	err = d.client.Patch(ctx, claim, client.MergeFrom(before), client.FieldOwner(kube.FieldManager))
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return max(1<<20, diskIn(has)-memoryIn(claim)), fmt.Sprintf("the PersistentVolumeClaim %s does not grow: %v", claim.Name, err), nil
	case err != nil:
		return 0, "", typed("grow the PersistentVolumeClaim "+claim.Name, err)
	}
	step("claim grown")
	return disk, "", nil
}

// removeClaims deletes claims, except those of disks to keep. An ErrInProgress means that one still exists. claims are those that
// existed when the caller decided: later ones belong to a later spec.
func (d *Driver) removeClaims(ctx context.Context, claims map[string]*corev1.PersistentVolumeClaim, keep func(disk string) bool) (err error) {
	for disk, claim := range claims {
		if keep(disk) || claim.Annotations[annotationPolicy] == string(v1alpha1.DiskRetain) {
			continue
		}
		if err := d.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return typed("delete the PersistentVolumeClaim "+claim.Name, err)
		}
		step("claim deleted")
		err = fmt.Errorf("the PersistentVolumeClaim %s is being deleted: %w", claim.Name, backend.ErrInProgress)
	}
	return err
}

// notifyWhenGone notifies the controller of a machine some time after the deletion of its claims has begun: they are not watched. That is soon
// at first, and later after twice the time that has passed.
func (d *Driver) notifyWhenGone(id backend.Identity, claims map[string]*corev1.PersistentVolumeClaim) {
	pause := claimCheck
	for _, claim := range claims {
		if claim.DeletionTimestamp != nil {
			pause = max(pause, time.Since(claim.DeletionTimestamp.Time))
		}
	}
	time.AfterFunc(pause, func() {
		if d.check() == nil {
			d.notifyChange(id)
		}
	})
}

// removeOthers deletes the claims of disks that a machine, which has no Pod, no longer has. It does not wait for their end.
func (d *Driver) removeOthers(ctx context.Context, machine *backend.Machine, claims map[string]*corev1.PersistentVolumeClaim) error {
	return unlessInProgress(d.removeClaims(ctx, claims, func(disk string) bool { return disk == rootDisk || hasClaimed(machine, disk) }))
}

// pendingDisks returns the disks whose changes wait for a restart.
func pendingDisks(running, wanted []launcher.Disk, refused string) (pending []backend.PendingDisk) {
	add := func(name, message string) {
		pending = append(pending, backend.PendingDisk{Name: name, Message: message})
	}
	for _, disk := range wanted {
		i := slices.IndexFunc(running, func(other launcher.Disk) bool { return other.Name == disk.Name })
		switch {
		case i < 0:
			add(disk.Name, "it is added when the machine restarts")
		case running[i].Bytes < disk.Bytes && refused != "":
			add(disk.Name, refused)
		case running[i].Bytes < disk.Bytes:
			add(disk.Name, "it grows when the machine restarts")
		}
	}
	for _, disk := range running {
		if !slices.ContainsFunc(wanted, func(other launcher.Disk) bool { return other.Name == disk.Name }) {
			add(disk.Name, "it is removed when the machine restarts")
		}
	}
	return pending
}
