package pod

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// labelFill is the UID of the machine whose disks a Pod copies from a snapshot. The Pod does not have labelUID, which selects the Pods
	// that run machines.
	labelFill = "cloudnative.tw/virtualmachine-fill-uid"
	// annotationRestore is the token of the restore that such a Pod is for; without it, it is for a new machine.
	annotationRestore = "cloudnative.tw/virtualmachine-restore"
	// fillSuffix follows the name of the objects of a machine in that of the Pod.
	fillSuffix = "-fill"
	// fillRetryInterval is the interval between attempts to do a restore whose Pod was ended from outside, and to record a result.
	fillRetryInterval = 5 * time.Second
)

// fill is the copying of disks of a snapshot to those of a machine, which is not done yet. Nothing else uses the disks meanwhile.
type fill struct {
	Snapshot backend.SnapshotIdentity `json:"snapshot"`
	// Disks are the names of the disks that both have.
	Disks []string `json:"disks"`
	// Token identifies a restore; empty for a new machine.
	Token string `json:"token,omitempty"`
	// Memory is the memory that the machine goes on with; nil if it boots. NoMemory is why it boots although the snapshot has memory.
	Memory   *snapshotMemory `json:"memory,omitempty"`
	NoMemory string          `json:"noMemory,omitempty"`
}

// failedRestore is the last restore of a machine, if it has failed and has changed nothing.
type failedRestore struct {
	Token   string `json:"token"`
	Message string `json:"message"`
}

// filledBy returns the identity of the machine whose disks a Pod copies; its UID is empty if the Pod does something else.
func filledBy(object metav1.Object) backend.Identity {
	id := machineOf(object, object.GetLabels()[labelFill])
	if object.GetName() != fillName(id.UID) {
		id.UID = ""
	}
	return id
}

// fillName returns the name of the Pod that copies the disks of a machine. It is fixed, so that there is at most one.
func fillName(machine types.UID) string { return objectName(machine) + fillSuffix }

// newFillPod returns the Pod that does the fill of a record.
func newFillPod(rec *record, images images, processors processors) *corev1.Pod {
	machine, fill := &rec.Machine, rec.Fill
	job := launcher.Fill{From: fill.Disks, Token: fill.Token}
	for _, disk := range claimedDisks(machine) {
		job.Disks = append(job.Disks, launcher.Disk{Name: disk.Name, Bytes: disk.SizeBytes})
	}
	meta := metav1.ObjectMeta{
		Namespace: machine.Namespace, Name: fillName(machine.UID), OwnerReferences: ownedBy(machine.Identity),
		Labels:      map[string]string{labelFill: string(machine.UID), labelSnapshot: string(fill.Snapshot.UID), labelCluster: string(machine.Cluster)},
		Annotations: map[string]string{annotationName: machine.Name, annotationSnapshotName: fill.Snapshot.Name},
	}
	if fill.Token != "" {
		meta.Annotations[annotationRestore] = fill.Token
	}
	if fill.Memory != nil {
		job.Memory, job.Epoch = &fill.Memory.Memory, rec.Epoch
	}
	if fill.Memory != nil && fill.Token == "" {
		of := fill.Memory.Started.Identity
		job.Of = &launcher.Identity{UID: string(of.UID), Namespace: of.Namespace, Name: of.Name}
	}
	pod := newJobPod(meta, launcher.Job{Fill: &job}, images.launcher, machine.Pod.Template)
	spec := &pod.Spec
	// One node at a time can use the volume of the snapshot.
	spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{labelSnapshot: string(fill.Snapshot.UID)}}, TopologyKey: corev1.LabelHostname,
	}}}}
	if template := machine.Pod.Template; template != nil {
		spec.NodeSelector, spec.PriorityClassName = template.Spec.NodeSelector, template.Spec.PriorityClassName
		if affinity := template.Spec.Affinity; affinity != nil {
			spec.Affinity.NodeAffinity = affinity.NodeAffinity
		}
	}
	if fill.Token == "" {
		// A volume may be bound to the node of the first Pod that uses it, which then has to have room and the device for the machine.
		definition := newDefinition(machine)
		definition.KVM = processors.kvm != ""
		processors.addTo(spec, &definition)
	}
	addDisks(spec, machine)
	addVolume(spec, "snapshot", launcher.SnapshotDir, true, claimSource(snapshotName(fill.Snapshot.UID)))
	return pod
}

// endOfFill returns how a Pod that is over has ended: why it has failed; empty if it has not. isOutside means that it was ended from
// outside, for example with its node, so that another attempt may succeed.
func endOfFill(pod *corev1.Pod) (failure string, isOutside bool) {
	result, _ := jobResult(pod) // otherwise it has neither
	switch {
	case result.Filled:
		return "", false
	case result.Error != "":
		return result.Error, pod.DeletionTimestamp != nil || pod.Status.Reason != ""
	}
	failure, words := fmt.Sprintf("the Pod %s has ended before it had copied the disks of the snapshot", pod.Name), describePod(pod)
	if status := machineStatus(pod); status != nil && status.State.Terminated != nil {
		failure += fmt.Sprintf(", with status %d", status.State.Terminated.ExitCode)
		words = cmp.Or(words, status.State.Terminated.Reason)
	}
	if words != "" {
		failure += ": " + words
	}
	return failure, true
}

// isFor reports whether a Pod does this fill, and not an earlier one.
func (f *fill) isFor(pod *corev1.Pod) bool { return pod.Annotations[annotationRestore] == f.Token }

// settles reports whether the end of a Pod has to be recorded, so that the Pod can be deleted. That of a failed attempt to make a new
// machine is the failure, until the next one.
func (r *record) settles(pod *corev1.Pod) bool {
	if !isOver(pod) || r.Fill == nil || !r.Fill.isFor(pod) {
		return isOver(pod)
	}
	failure, isOutside := endOfFill(pod)
	return failure == "" || !isOutside && r.Fill.Token != ""
}

// describeFill describes the fill of a record, given its Pod, which may be nil.
func describeFill(s *backend.Server, rec *record, pod *corev1.Pod, now time.Time) {
	s.Restored = rec.Restored
	if failed := rec.FailedRestore; failed != nil {
		s.FailedRestore = &backend.FailedRestore{Token: failed.Token, Err: errors.New(failed.Message)}
	}
	if rec.Fill == nil {
		return
	}
	task := backend.TaskRestore
	if rec.Fill.Token == "" {
		task, s.State, s.Ended = backend.TaskCreate, backend.StateAbsent, nil
	}
	switch {
	case pod == nil || !rec.Fill.isFor(pod):
		// The next call of the driver makes it.
	case task == backend.TaskRestore && whyFillWaits(pod, now) != "":
		// The next call of the driver says so, or withdraws the restore.
	case !isOver(pod) || rec.settles(pod):
		s.Task, s.Progress = task, fillProgress(pod, now)
		if blocked := blockedBy(pod, machineStatus(pod)); task == backend.TaskCreate && blocked != nil && blocked.Unschedulable && pod.DeletionTimestamp == nil {
			s.Blocked = blocked
		}
	case task == backend.TaskCreate:
		failure, _ := endOfFill(pod)
		s.Ended = &backend.Ended{Run: string(pod.UID), Cause: backend.CauseCreateFailed, Message: failure, At: endedAt(pod, now)}
	}
	s.Restoring = rec.Fill.Token
	s.RestoreWaits = task == backend.TaskRestore && s.Task == backend.TaskNone
}

// fillProgress describes what a Pod does that copies disks.
func fillProgress(pod *corev1.Pod, now time.Time) string {
	if isLost(pod, now) {
		return lostNode(pod)
	}
	return cmp.Or(whyFillWaits(pod, now), "the disks of the snapshot are being copied")
}

// whyFillWaits returns why a Pod that copies disks has not begun for long; empty if it has, is ending, or has not waited for long.
func whyFillWaits(pod *corev1.Pod, now time.Time) string {
	status := machineStatus(pod)
	if isOver(pod) || pod.DeletionTimestamp != nil || status != nil && (status.State.Running != nil || status.State.Terminated != nil) || !hasWaited(pod, now) {
		return ""
	}
	blocked := blockedBy(pod, status)
	if blocked == nil {
		return ""
	}
	return fmt.Sprintf("the Pod %s, which copies the disks of the snapshot, waits: %s", pod.Name, blocked.Message)
}

// endFill records how a fill has ended, given the Pod of the last run, which may be nil. A machine that was restored is off, as the saved
// memory of before is void, or asleep with the memory in the snapshot.
func (r *record) endFill(why string, machine *corev1.Pod, now time.Time) {
	done := r.Fill
	r.Fill = nil
	if why != "" {
		r.FailedRestore = &failedRestore{Token: done.Token, Message: why}
		return
	}
	if done.NoMemory != "" {
		r.MemoryLost = &failure{Message: done.NoMemory, At: now}
	}
	if done.Token == "" {
		if done.Memory != nil {
			r.Asleep, r.BalloonBytes = &asleep{At: now, SavedBytes: done.Memory.Size}, done.Memory.BalloonBytes
		}
		return
	}
	switch memory := done.Memory; {
	case memory != nil: // it is of the present epoch
		r.Started, r.Asleep = &memory.Started, &asleep{At: now, SavedBytes: memory.Size}
		r.Stopped, r.Failure, r.BalloonBytes, r.DiskRefused = false, nil, memory.BalloonBytes, ""
	case r.isAsleep(machine):
		if machine != nil {
			r.Run = machine.Annotations[annotationRun]
		}
		r.Stopped, r.Asleep, r.Epoch = true, nil, r.Run
	}
	r.Restored, r.FailedRestore = done.Token, nil
}
