package pod

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestNewFork(t *testing.T) {
	image := &v1alpha1.Image{Container: "disk:v1"}
	snapshot := &snapshotRecord{Image: image, Disks: []snapshotDisk{{Name: rootDisk, VirtualBytes: 64 << 20}, {Name: "data", VirtualBytes: 32 << 20}}}
	for name, test := range map[string]struct {
		root     int64
		disks    []backend.Disk
		wantRoot int64
		want     []string
		field    string
	}{
		"as the snapshot":           {64 << 20, []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}, 64 << 20, []string{rootDisk, "data"}, ""},
		"the default size":          {0, nil, 64 << 20, []string{rootDisk}, ""},
		"larger, and another disk":  {128 << 20, []backend.Disk{{Name: "other", SizeBytes: 1 << 20}}, 128 << 20, []string{rootDisk}, ""},
		"too small":                 {32 << 20, nil, 0, nil, "spec.resource.rootDisk"},
		"another disk is too small": {0, []backend.Disk{{Name: "data", SizeBytes: 1 << 20}}, 0, nil, "spec.disks"},
	} {
		t.Run(name, func(t *testing.T) {
			given := newMachine()
			given.Image, given.DiskBytes, given.Disks = &v1alpha1.Image{Snapshot: "before"}, test.root, test.disks
			got, names, err := newFork(given, snapshot)
			var wrong *backend.FieldError
			if errors.As(err, &wrong); wrong != nil || test.field != "" {
				if wrong == nil || wrong.Field != test.field {
					t.Errorf("got %v, want %s", err, test.field)
				}
				return
			}
			if err != nil || !slices.Equal(names, test.want) || got.DiskBytes != test.wantRoot || got.Image != image {
				t.Errorf("got %v, %d bytes, %+v, %v", names, got.DiskBytes, got.Image, err)
			}
		})
	}
}

func TestFillPod(t *testing.T) {
	machine := newMachine()
	machine.DiskBytes, machine.Disks = 64<<20, []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}
	machine.Pod.Template = &v1alpha1.PodTemplate{Spec: v1alpha1.PodScheduling{
		NodeSelector: map[string]string{"disk": "fast"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
	}}
	rec := &record{Machine: machine, Fill: &fill{Snapshot: backend.SnapshotIdentity{UID: "snapshot", Name: "before"}, Disks: []string{rootDisk}}}
	pod := newFillPod(rec, images{launcher: "launcher:v1"}, emulated)
	if pod.Labels[labelUID] != "" || filledBy(pod).UID != machine.UID || filledBy(pod).Name != machine.Name || snapshotOf(pod).UID != "snapshot" || snapshotOf(pod).Name != "before" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != machine.UID {
		t.Errorf("its controller is %+v", owner)
	}
	if pod.Spec.NodeSelector["disk"] != "fast" || len(pod.Spec.Tolerations) != 1 || pod.Spec.Affinity.NodeAffinity == nil ||
		len(pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("spec %+v", pod.Spec)
	}
	claims := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			claims[volume.Name] = claim.ClaimName
		}
	}
	name := objectName(machine.UID)
	if diff := cmp.Diff(map[string]string{"disk": name, "disk-data": name + "-data", "snapshot": "keelson-snapshot-snapshot"}, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	c := pod.Spec.Containers[0]
	if i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "snapshot" }); !c.VolumeMounts[i].ReadOnly {
		t.Error("the snapshot can be changed")
	}
	if got, want := c.Resources.Requests.Cpu().MilliValue(), int64(200); got != want {
		t.Errorf("a new machine requests %dm CPUs, want %dm", got, want)
	}
	var job launcher.Job
	if err := json.Unmarshal([]byte(c.Env[0].Value), &job); err != nil || c.Env[0].Name != launcher.JobVariable {
		t.Fatalf("variable %+v, %v", c.Env[0], err)
	}
	want := launcher.Job{Fill: &launcher.Fill{Disks: []launcher.Disk{{Name: rootDisk, Bytes: 64 << 20}, {Name: "data", Bytes: 32 << 20}}, From: []string{rootDisk}}}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	rec.Fill.Token = "once"
	if pod = newFillPod(rec, images{}, emulated); pod.Annotations[annotationRestore] != "once" || pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 100 {
		t.Errorf("a restore: annotations %v, requests %v", pod.Annotations, pod.Spec.Containers[0].Resources.Requests)
	}
}

func TestDescribeFill(t *testing.T) {
	now := time.Now()
	over := func(result string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: result}}}}
		}
	}
	for name, test := range map[string]struct {
		token    string
		change   func(*corev1.Pod)
		state    backend.State
		task     backend.Task
		progress string
		ended    string
		settles  bool
	}{
		"a new machine without its Pod": {"", nil, backend.StateAbsent, backend.TaskNone, "", "", false},
		"a new machine":                 {"", func(pod *corev1.Pod) { run(pod, corev1.ConditionTrue) }, backend.StateAbsent, backend.TaskCreate, "being copied", "", false},
		"no node": {"", func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "too big"}}
		}, backend.StateAbsent, backend.TaskCreate, "waits: too big", "", false},
		"the node is lost": {"", func(pod *corev1.Pod) {
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(-time.Hour)))
		}, backend.StateAbsent, backend.TaskCreate, "does not confirm", "", false},
		"a new machine has its disks": {"", over(`{"filled":true}`), backend.StateAbsent, backend.TaskCreate, "", "", true},
		"a new machine has failed":    {"", over(`{"error":"no room"}`), backend.StateAbsent, backend.TaskNone, "", "no room", false},
		"a new machine was evicted": {"", func(pod *corev1.Pod) {
			over("")(pod)
			pod.Status.Reason, pod.Status.Message = "Evicted", "disk pressure"
		}, backend.StateAbsent, backend.TaskNone, "", "Evicted: disk pressure", false},
		"a restore without its Pod":         {"once", nil, backend.StateStopped, backend.TaskNone, "", "", false},
		"the Pod is of an earlier restore":  {"once", func(pod *corev1.Pod) { pod.Annotations[annotationRestore] = "before" }, backend.StateStopped, backend.TaskNone, "", "", false},
		"a restore":                         {"once", func(*corev1.Pod) {}, backend.StateStopped, backend.TaskRestore, "being copied", "", false},
		"a restore has failed":              {"once", over(`{"error":"no room"}`), backend.StateStopped, backend.TaskRestore, "", "", true},
		"the Pod of a restore was killed":   {"once", over(""), backend.StateStopped, backend.TaskNone, "", "", false},
		"the Pod of an earlier one is over": {"once", func(pod *corev1.Pod) { over(`{"filled":true}`)(pod); pod.Annotations[annotationRestore] = "before" }, backend.StateStopped, backend.TaskNone, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &record{Machine: newMachine(), Fill: &fill{Disks: []string{rootDisk}, Token: test.token}}
			var pod *corev1.Pod
			if test.change != nil {
				pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", Annotations: map[string]string{annotationRestore: test.token}}}
				test.change(pod)
				if got := rec.settles(pod); got != test.settles {
					t.Errorf("it settles: %t", got)
				}
			}
			secret := newSecret(recordNamespace, rec, nil)
			got, err := describe(secret, nil, pod, now)
			if err != nil || got.State != test.state || got.Task != test.task || !strings.Contains(got.Progress, test.progress) {
				t.Errorf("got %+v, %v", got, err)
			}
			if unscheduled := test.progress == "waits: too big"; (got.Blocked != nil && got.Blocked.Unschedulable) != unscheduled {
				t.Errorf("blocked by %+v", got.Blocked)
			}
			if waits := test.token != "" && test.task == backend.TaskNone; got.RestoreWaits != waits {
				t.Errorf("a restore waits: %t", got.RestoreWaits)
			}
			if test.ended != "" && (got.Ended == nil || got.Ended.Cause != backend.CauseCreateFailed || !strings.Contains(got.Ended.Message, test.ended)) || test.ended == "" && got.Ended != nil {
				t.Errorf("it ended as %+v", got.Ended)
			}
		})
	}
}

// taken makes a snapshot of a machine that has its disks.
func (c *cluster) taken(of *backend.Machine) backend.SnapshotIdentity { return c.takenWith(of, nil) }

// takenWith is taken with memory.
func (c *cluster) takenWith(of *backend.Machine, memory *snapshotMemory) backend.SnapshotIdentity {
	c.Helper()
	id := backend.SnapshotIdentity{UID: uuid.NewUUID(), Namespace: of.Namespace, Name: "before"}
	rec := snapshotRecord{Machine: of.Identity, TakenAt: time.Now(), Image: of.Image, Memory: memory}
	for _, disk := range disksOf(of) {
		rec.Disks = append(rec.Disks, snapshotDisk{Name: disk.Name, VirtualBytes: disk.SizeBytes})
	}
	claim, err := c.api.CoreV1().PersistentVolumeClaims(of.Namespace).Create(c.Context(), newSnapshotClaim(id, of, false), metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	rec.Claim = claim.UID
	secret := newSnapshotSecret(recordNamespace, id, &rec)
	if _, err := c.api.CoreV1().Secrets(recordNamespace).Create(c.Context(), secret, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	return id
}

// fills sets the result of the simulated jobs that copy the disks of a snapshot; nil while they are being done.
func (c *cluster) fills(result *launcher.JobResult) {
	c.setJobs(func(*launcher.Job) *launcher.JobResult { return result })
}

// deleteTaken deletes the claim and the record of a snapshot.
func (c *cluster) deleteTaken(id backend.SnapshotIdentity) {
	c.Helper()
	harness.Eventually(c, "the snapshot is gone", func() bool {
		err := c.api.CoreV1().PersistentVolumeClaims(id.Namespace).Delete(c.Context(), snapshotName(id.UID), metav1.DeleteOptions{})
		return apierrors.IsNotFound(err)
	})
	harness.Eventually(c, "its record is gone", func() bool {
		err := c.api.CoreV1().Secrets(recordNamespace).Delete(c.Context(), recordName(id.Namespace, snapshotName(id.UID)), metav1.DeleteOptions{})
		return apierrors.IsNotFound(err)
	})
}

// forkOf returns a new machine of a snapshot.
func (c *cluster) forkOf(id backend.SnapshotIdentity) backend.Machine {
	fork := c.machine(uuid.NewUUID())
	fork.Image, fork.Snapshot, fork.DiskBytes = &v1alpha1.Image{Snapshot: id.Name}, id.UID, 0
	return fork
}

// fillPod returns the Pod that copies the disks of a machine; nil if there is none.
func (c *cluster) fillPod(machine *backend.Machine) *corev1.Pod {
	c.Helper()
	pod, err := c.driver.readFill(c.Context(), c.driver.client, machine.Identity)
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

// A machine of a snapshot is complete when its disks are copied, and needs the snapshot no longer.
func TestFork(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	first := c.machine(uuid.NewUUID())
	first.Image = &v1alpha1.Image{Container: "disk:v1", Agent: ptr.To(false)}
	id := c.taken(&first)
	fork := c.forkOf(id)
	c.fills(nil)
	c.must("Create", c.driver.Create(t.Context(), fork))
	c.until(fork, "its disks are being copied", func(s backend.Server) bool {
		return s.State == backend.StateAbsent && s.Task == backend.TaskCreate && strings.Contains(s.Progress, "copied")
	})
	if err := c.driver.Start(t.Context(), fork); !errors.Is(err, backend.ErrInProgress) {
		t.Errorf("the start of an incomplete machine: %v", err)
	}
	c.open(t) // another manager continues
	c.fills(&launcher.JobResult{Error: "the volume has no room"})
	failed := c.until(fork, "it has failed", func(s backend.Server) bool { return s.State == backend.StateAbsent && s.Ended != nil })
	if failed.Ended.Cause != backend.CauseCreateFailed || !strings.Contains(failed.Ended.Message, "no room") || failed.Ended.Run == "" || failed.Task != backend.TaskNone {
		t.Errorf("it ended as %+v", failed.Ended)
	}
	c.fills(&launcher.JobResult{Filled: true})
	c.must("Create", c.driver.Create(t.Context(), fork))
	c.until(fork, "it is complete", func(s backend.Server) bool {
		return s.State == backend.StateStopped && s.Task == backend.TaskNone && s.Ended == nil
	})
	harness.Eventually(t, "the Pod is gone", func() bool { return c.fillPod(&fork) == nil })
	c.deleteTaken(id)
	if err := c.driver.Create(t.Context(), fork); err != nil {
		t.Errorf("Create of a complete machine: %v", err)
	}
	later := fork
	later.Snapshot, later.Hash = "", "2" // the controller knows the snapshot only when it creates the machine
	c.must("Start", c.driver.Start(t.Context(), later))
	c.until(fork, "it runs", isRunning)
	if definition := c.definition(fork); !definition.Image || definition.DiskBytes != first.DiskBytes || !definition.NoAgent || definition.UID != string(fork.UID) {
		t.Errorf("it runs %+v", definition)
	}
	if server := c.until(fork, "it runs", isRunning); len(server.Pending) > 0 {
		t.Errorf("pending: %v", server.Pending)
	}
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), later))
	if server := c.until(fork, "it runs", isRunning); len(server.Pending) > 0 || server.Hash != "2" {
		t.Errorf("pending: %v", server.Pending)
	}
	// Its Secret is lost: its Pod has what the snapshot had.
	c.loseRecord(fork.Identity)
	c.until(fork, "its Secret is gone", func(s backend.Server) bool { return s.Hash == "" })
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), later))
	_, rec, err := c.driver.find(t.Context(), fork.Identity)
	if err != nil || rec.Machine.DiskBytes != first.DiskBytes || cmp.Diff(first.Image, rec.Machine.Image) != "" {
		t.Errorf("the record has %+v, %v", rec, err)
	}
	c.remove(fork)
	c.nothingLeft()
}

// What a machine cannot be made of is refused before there is anything, and a machine is deleted while its disks are copied.
func TestForkIsRefusedOrDeleted(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	first := c.machine(uuid.NewUUID())
	first.Disks = []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}
	id := c.taken(&first)
	for field, change := range map[string]func(*backend.Machine){
		"spec.image.snapshot":    func(m *backend.Machine) { m.Namespace = c.namespaces[1] },
		"spec.resource.rootDisk": func(m *backend.Machine) { m.DiskBytes = 1 << 20 },
		"spec.disks":             func(m *backend.Machine) { m.Disks = []backend.Disk{{Name: "data", SizeBytes: 1 << 20}} },
	} {
		fork := c.forkOf(id)
		change(&fork)
		var wrong *backend.FieldError
		if err := c.driver.Create(t.Context(), fork); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if left := c.leftovers(t); len(left) != 2 {
		t.Errorf("there is %q", left)
	}
	fork := c.forkOf(id)
	c.fills(nil)
	c.must("Create", c.driver.Create(t.Context(), fork))
	c.until(fork, "its disks are being copied", func(s backend.Server) bool { return s.Task == backend.TaskCreate })
	c.remove(fork)
	if left := c.leftovers(t); len(left) != 2 {
		t.Errorf("there is %q", left)
	}
	c.deleteTaken(id)
}

// All disks of a machine are of one snapshot, and the record says what its Pod does, whatever else is wanted meanwhile.
func TestForkIsOfOneSnapshot(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	first := c.machine(uuid.NewUUID())
	first.Disks = []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}
	id := c.taken(&first)
	fork := c.forkOf(id)
	c.fills(nil)
	c.must("Create", c.driver.Create(t.Context(), fork))
	later := fork
	later.Disks = first.Disks
	if err := c.driver.Create(t.Context(), later); !errors.Is(err, backend.ErrInProgress) {
		t.Errorf("Create with another disk: %v", err)
	}
	if _, rec, err := c.driver.find(t.Context(), fork.Identity); err != nil || !slices.Equal(rec.Fill.Disks, []string{rootDisk}) {
		t.Errorf("the record has %+v, %v", rec.Fill, err)
	}
	c.fills(&launcher.JobResult{Error: "the volume has no room"})
	c.until(fork, "it has failed", func(s backend.Server) bool { return s.Ended != nil })
	c.deleteTaken(id)
	id = c.taken(&first)
	later.Snapshot = id.UID
	var wrong *backend.FieldError
	if err := c.driver.Create(t.Context(), later); !errors.As(err, &wrong) || wrong.Field != "spec.image.snapshot" {
		t.Errorf("Create from another snapshot: %v", err)
	}
	c.remove(fork)
	c.deleteTaken(id)
}
