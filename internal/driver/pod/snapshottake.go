package pod

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

// annotationSnapshotRun is the UID of the Pod of the machine that a Pod takes a snapshot of; empty if the machine was off or asleep.
const annotationSnapshotRun = "cloudnative.tw/virtualmachinesnapshot-run"

// snapshotSource is what a snapshot is taken of.
type snapshotSource struct {
	// machine is the machine with the disks that it has: those of its last start.
	machine *backend.Machine
	// pod is its Pod; nil if it is off or asleep.
	pod *corev1.Pod
	// memory means that its memory is wanted, of which its guest was left with balloonBytes; 0 means all of it.
	memory       bool
	balloonBytes int64
}

// snapshotSource returns what a snapshot is taken of.
func (d *Driver) snapshotSource(ctx context.Context, of backend.Source) (*snapshotSource, error) {
	_, rec, err := d.find(ctx, of.Server)
	if err != nil {
		return nil, err
	}
	machine := cmp.Or(rec.Started, &rec.Machine) // its record was lost and written again
	switch {
	case len(claimedDisks(machine)) == 0:
		return nil, fmt.Errorf("machine %s: %w: the default guest has a root disk only with spec.resource.rootDisk", of.Server.Name, backend.ErrNoDisks)
	case rec.Run == "":
		return nil, fmt.Errorf("machine %s: %w", of.Server.Name, backend.ErrNotCreated) // its first start makes its disks
	case of.Memory && machine.DiskBytes == 0:
		return nil, fmt.Errorf("machine %s: %w: the driver pod takes snapshots with memory of machines with a root disk: create a VirtualMachineSnapshot without memory",
			of.Server.Name, backend.ErrInvalid)
	}
	pod, err := readPod(ctx, d.client, of.Server)
	if err != nil {
		return nil, err
	}
	isAsleep := rec.isAsleep(pod)
	if pod != nil && isOver(pod) {
		pod = nil
	}
	if of.Memory && pod == nil && !isAsleep {
		return nil, fmt.Errorf("machine %s: %w", of.Server.Name, backend.ErrNotRunning)
	}
	return &snapshotSource{machine: machine, pod: pod, memory: of.Memory, balloonBytes: rec.BalloonBytes}, nil
}

// runOf returns the UID of the Pod of a machine; empty if it is off.
func runOf(pod *corev1.Pod) string {
	if pod == nil || isOver(pod) {
		return ""
	}
	return string(pod.UID)
}

// ofSnapshot returns the identity of the machine that a Pod takes a snapshot of; its UID is empty if the Pod does something else.
func ofSnapshot(object metav1.Object) backend.Identity {
	return machineOf(object, object.GetAnnotations()[annotationSnapshotOf])
}

// newTakePod returns the Pod that takes a snapshot. It is at the node of a machine that runs, which has the volumes and copies them.
func newTakePod(id backend.SnapshotIdentity, source *snapshotSource, image string) *corev1.Pod {
	job := launcher.Job{Take: &launcher.Take{Memory: source.memory}}
	for _, disk := range claimedDisks(source.machine) {
		job.Take.Disks = append(job.Take.Disks, disk.Name)
	}
	pod := newJobPod(newSnapshotMeta(id, source.machine.Identity), job, image, source.machine.Pod.Template)
	pod.Annotations[annotationSnapshotRun] = runOf(source.pod)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "VirtualMachineSnapshot", Name: id.Name, UID: id.UID, Controller: ptr.To(true),
	}}
	if source.pod != nil {
		// Not spec.nodeName: the scheduler has to choose a node for the volume of the snapshot.
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{source.pod.Spec.NodeName},
			}}}},
		}}}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
	}
	addDisks(&pod.Spec, source.machine)
	addVolume(&pod.Spec, "snapshot", launcher.SnapshotDir, false, claimSource(snapshotName(id.UID)))
	return pod
}

// newSnapshotRecord returns the record of a snapshot that is taken.
func newSnapshotRecord(claim *corev1.PersistentVolumeClaim, source *snapshotSource, taken *launcher.Taken) *snapshotRecord {
	machine := source.machine
	rec := &snapshotRecord{
		Claim: claim.UID, Machine: machine.Identity, TakenAt: taken.At, Image: machine.Image, Quiesced: taken.Quiesced, AllocatedBytes: taken.AllocatedBytes,
	}
	for _, disk := range taken.Disks {
		rec.Disks = append(rec.Disks, snapshotDisk{Name: disk.Name, VirtualBytes: disk.Bytes})
	}
	if taken.Memory != nil {
		rec.Memory = &snapshotMemory{Memory: *taken.Memory, Started: *machine, BalloonBytes: source.balloonBytes}
	}
	return rec
}

// describeSnapshot returns the state of a snapshot, given its claim and its record, the Pod that takes it, and the Pod of its machine. Each may
// be nil, but a record has its claim. It is a pure function.
func describeSnapshot(claim *corev1.PersistentVolumeClaim, rec *snapshotRecord, pod, machine *corev1.Pod, now time.Time) backend.SnapshotState {
	if rec != nil {
		return rec.describe(claim)
	}
	if pod == nil {
		return backend.SnapshotState{Progress: "the snapshot waits for its volume and its machine"}
	}
	status := machineStatus(pod)
	result, hasResult := jobResult(pod)
	switch {
	case isLost(pod, now):
		return backend.SnapshotState{Busy: true, Progress: lostNode(pod) + ". The snapshot is taken when the node is back, or was deleted"}
	case pod.DeletionTimestamp != nil:
		return backend.SnapshotState{Busy: true, Progress: "the last attempt is ending"}
	case hasResult && result.Taken != nil:
		return backend.SnapshotState{Progress: "the disks are copied"} // it is recorded next
	case isOver(pod):
		return backend.SnapshotState{Failure: takeFailure(pod), FailedAt: endedAt(pod, now)}
	case pod.Annotations[annotationSnapshotRun] != runOf(machine):
		return backend.SnapshotState{Progress: "the machine has started or ended meanwhile: the copy begins again"}
	case status != nil && status.State.Running != nil:
		return backend.SnapshotState{Busy: true, Progress: "the disks are being copied"}
	}
	return backend.SnapshotState{Busy: true, Progress: describeTakeStart(pod, status, now)}
}

// describe returns the state of a snapshot that is taken.
func (r *snapshotRecord) describe(claim *corev1.PersistentVolumeClaim) backend.SnapshotState {
	state := backend.SnapshotState{Taken: true, TakenAt: r.TakenAt, AllocatedBytes: r.AllocatedBytes, Quiesced: r.Quiesced}
	for _, disk := range r.Disks {
		state.Disks = append(state.Disks, backend.SnapshotDisk{Name: disk.Name, VirtualBytes: disk.VirtualBytes})
	}
	if r.Memory != nil {
		state.MemoryBytes = r.Memory.Size
	}
	switch {
	case claim.Status.Phase == corev1.ClaimLost:
		state.Lost = fmt.Sprintf("the volume of the PersistentVolumeClaim %s is gone: restore it, or delete the VirtualMachineSnapshot", claim.Name)
	case claim.DeletionTimestamp != nil:
		state.Lost = fmt.Sprintf("the PersistentVolumeClaim %s is being deleted: delete the VirtualMachineSnapshot", claim.Name)
	}
	return state
}

// describeTakeStart returns what a Pod waits for that does not run yet.
func describeTakeStart(pod *corev1.Pod, status *corev1.ContainerStatus, now time.Time) string {
	blocked, progress := blockedBy(pod, status), "the Pod that takes the snapshot is starting"
	if blocked != nil && blocked.Unschedulable {
		progress = "the Pod that takes the snapshot waits for a node"
	}
	if blocked == nil || !hasWaited(pod, now) {
		return progress
	}
	return progress + ": " + blocked.Message
}

// takeFailure returns why a Pod has taken no snapshot.
func takeFailure(pod *corev1.Pod) error {
	if result, ok := jobResult(pod); ok && result.Error != "" {
		return fmt.Errorf("take the snapshot: %s", result.Error)
	}
	if status := machineStatus(pod); status != nil && status.State.Terminated != nil {
		return fmt.Errorf("the Pod %s that takes the snapshot has ended with status %d: %s", pod.Name, status.State.Terminated.ExitCode,
			cmp.Or(describePod(pod), status.State.Terminated.Reason))
	}
	return fmt.Errorf("the Pod %s that takes the snapshot was ended: %s", pod.Name, cmp.Or(describePod(pod), "it was evicted, or its node has failed"))
}

// endedAt returns when a Pod has ended.
func endedAt(pod *corev1.Pod, now time.Time) time.Time {
	if status := machineStatus(pod); status != nil && status.State.Terminated != nil && !status.State.Terminated.FinishedAt.IsZero() {
		return status.State.Terminated.FinishedAt.Time
	}
	if ready := conditionOf(pod, corev1.PodReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return now
}
