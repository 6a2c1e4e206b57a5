package pod

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// Labels and annotations of the objects of a snapshot. They do not have labelUID, which selects the objects of machines.
const (
	// labelSnapshot marks an object as one of the VirtualMachineSnapshot with this UID: its claim, and the Pods that use it.
	labelSnapshot = "cloudnative.tw/virtualmachinesnapshot-uid"
	// annotationSnapshotName is the name of the VirtualMachineSnapshot.
	annotationSnapshotName = "cloudnative.tw/virtualmachinesnapshot-name"
	// annotationSnapshotOf is the UID of the machine that a snapshot is of.
	annotationSnapshotOf = "cloudnative.tw/virtualmachinesnapshot-of"
)

// snapshotRecord describes a snapshot that is taken. It never changes.
type snapshotRecord struct {
	// Claim is the UID of the claim with its data: a later claim of the same name is another one.
	Claim types.UID `json:"claim"`
	// Machine is what the snapshot is of.
	Machine backend.Identity `json:"machine"`
	// TakenAt is the moment of the snapshot.
	TakenAt time.Time `json:"takenAt"`
	// Disks are its disks, the root disk first.
	Disks []snapshotDisk `json:"disks"`
	// Image is what the machine boots; nil means the default guest.
	Image *v1alpha1.Image `json:"image,omitempty"`
	// Quiesced means that the file systems of the guest were frozen.
	Quiesced bool `json:"quiesced,omitempty"`
	// AllocatedBytes is the space that its files use.
	AllocatedBytes int64 `json:"allocatedBytes"`
	// Memory is its memory; nil if it has none.
	Memory *snapshotMemory `json:"memory,omitempty"`
}

// snapshotMemory is the memory in a snapshot.
type snapshotMemory struct {
	savedmemory.Memory

	// Started is the machine that it is of, as it was started.
	Started backend.Machine `json:"started"`
	// BalloonBytes is the memory that its guest was left with; 0 means all of it.
	BalloonBytes int64 `json:"balloonBytes,omitempty"`
}

// snapshotDisk is a disk in a snapshot.
type snapshotDisk struct {
	// Name is v1alpha1.RootDiskName, or that of a disk of spec.disks.
	Name string `json:"name"`
	// VirtualBytes is the size that a guest sees.
	VirtualBytes int64 `json:"virtualBytes"`
}

// snapshotName is the name of the claim of a snapshot, and of the Pod that takes it. It is fixed, so that there is at most one of each.
func snapshotName(uid types.UID) string { return "keelson-snapshot-" + string(uid) }

// newSnapshotMeta returns the metadata of the claim of a snapshot of a machine, and of the Pod that takes it.
func newSnapshotMeta(id backend.SnapshotIdentity, machine backend.Identity) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: snapshotName(id.UID),
		Labels:      map[string]string{labelSnapshot: string(id.UID), labelCluster: string(machine.Cluster)},
		Annotations: map[string]string{annotationSnapshotName: id.Name, annotationSnapshotOf: string(machine.UID), annotationName: machine.Name},
	}
}

// snapshotOf returns the identity of the snapshot of an object; its UID is empty if the object is of none.
func snapshotOf(object metav1.Object) backend.SnapshotIdentity {
	return backend.SnapshotIdentity{
		UID: types.UID(object.GetLabels()[labelSnapshot]), Namespace: namespaceOf(object), Name: object.GetAnnotations()[annotationSnapshotName],
	}
}

// newSnapshotClaim returns the claim of a snapshot of a machine. It has room for all that its disks can have, and its memory if that is wanted.
// It has no owner: the garbage collector must not delete data.
func newSnapshotClaim(id backend.SnapshotIdentity, machine *backend.Machine, memory bool) *corev1.PersistentVolumeClaim {
	var size int64
	for _, disk := range claimedDisks(machine) {
		size += disk.SizeBytes
	}
	if memory {
		size += machine.MemoryBytes
	}
	return &corev1.PersistentVolumeClaim{ObjectMeta: newSnapshotMeta(id, machine.Identity), Spec: newClaimSpec(machine, size)}
}

// newSnapshotSecret returns the Secret with the record of a snapshot, in the manager's namespace as that of a machine.
func newSnapshotSecret(namespace string, id backend.SnapshotIdentity, rec *snapshotRecord) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: newSnapshotMeta(id, rec.Machine), Data: map[string][]byte{recordKey: mustJSON(rec)}}
	secret.Namespace, secret.Name = namespace, recordName(id.Namespace, snapshotName(id.UID))
	secret.Labels[labelRecord], secret.Annotations[annotationNamespace] = recordOfSnapshot, id.Namespace
	return secret
}

// snapshotRecordOf returns the record in a Secret; nil if it is not of a claim.
func snapshotRecordOf(secret *corev1.Secret, claim *corev1.PersistentVolumeClaim) (*snapshotRecord, error) {
	var rec snapshotRecord
	if err := json.Unmarshal(secret.Data[recordKey], &rec); err != nil {
		return nil, fmt.Errorf("read the record of a snapshot in the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if rec.Claim != claim.UID {
		return nil, nil
	}
	return &rec, nil
}
