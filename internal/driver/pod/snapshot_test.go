package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
)

func newSnapshotIdentity() backend.SnapshotIdentity {
	return backend.SnapshotIdentity{UID: "0b5b4d8e-0000-4000-8000-0000000000ee", Namespace: "default", Name: "before"}
}

// The claim has room for all that the disks can have, and neither the watches of machines nor the garbage collector find it.
func TestSnapshotClaim(t *testing.T) {
	machine := newMachine()
	machine.DiskBytes, machine.Pod.StorageClassName = 1<<30, "fast"
	machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 2 << 30}}
	claim, larger := newSnapshotClaim(newSnapshotIdentity(), &machine, false), newSnapshotClaim(newSnapshotIdentity(), &machine, true)
	if more := larger.Spec.Resources.Requests.Storage().Value() - claim.Spec.Resources.Requests.Storage().Value(); more != machine.MemoryBytes+machine.MemoryBytes/16 {
		t.Errorf("with memory, it has %d bytes more", more)
	}
	if size := claim.Spec.Resources.Requests.Storage().Value(); size < 3<<30+3<<26 || size > 3<<30+3<<26+1<<20 || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("it has %d bytes of %+v", size, claim.Spec)
	}
	if id := snapshotOf(claim); id != newSnapshotIdentity() || identityOf(claim).UID != "" || len(claim.OwnerReferences) > 0 {
		t.Errorf("it is of %+v: %+v", id, claim.ObjectMeta)
	}
	claim.UID = "claim"
	want := &snapshotRecord{
		Claim: claim.UID, Machine: machine.Identity, TakenAt: time.Unix(1000, 0).UTC(), Disks: []snapshotDisk{{Name: "root", VirtualBytes: 1 << 30}},
		Image: &v1alpha1.Image{Container: "disk:v1"}, Quiesced: true, AllocatedBytes: 1 << 20,
	}
	secret := newSnapshotSecret(recordNamespace, newSnapshotIdentity(), want)
	if id := snapshotOf(secret); id != newSnapshotIdentity() || identityOf(secret).UID != "" || secret.Namespace != recordNamespace {
		t.Errorf("its record is of %+v: %+v", id, secret.ObjectMeta)
	}
	got, err := snapshotRecordOf(secret, claim)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	claim.UID = "another claim of the same name"
	if rec, err := snapshotRecordOf(secret, claim); rec != nil || err != nil {
		t.Errorf("of another claim: %+v, %v", rec, err)
	}
	secret.Data[recordKey] = []byte("{")
	if _, err := snapshotRecordOf(secret, claim); err == nil {
		t.Error("a damaged record is read")
	}
}

func TestJobPod(t *testing.T) {
	machine := newMachine()
	template := &v1alpha1.PodTemplate{Spec: v1alpha1.PodScheduling{Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}}}
	pod := newJobPod(newSnapshotMeta(newSnapshotIdentity(), machine.Identity), launcher.Job{Take: &launcher.Take{Disks: []string{"root"}}}, "launcher:v1", template)
	if len(pod.Spec.Tolerations) != 1 || pod.Spec.SecurityContext.Sysctls != nil || pod.Spec.Containers[0].Resources.Limits.Memory().Value() != jobMemory {
		t.Errorf("it is %+v", pod.Spec)
	}
	if _, isMachine := definitionOf(pod); isMachine {
		t.Error("it runs a machine")
	}
	if result, ok := jobResult(pod); ok {
		t.Errorf("before its end, its result is %+v", result)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: `{"error":"full"}`},
	}}}
	if result, ok := jobResult(pod); !ok || result.Error != "full" {
		t.Errorf("its result is %+v, %t", result, ok)
	}
}
