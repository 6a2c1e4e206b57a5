package pod

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// syncJob ends a job, which is complete at once unless the test says otherwise.
func (c *cluster) syncJob(ctx context.Context, pod *corev1.Pod) error {
	var job launcher.Job
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == launcher.JobVariable {
			if err := json.Unmarshal([]byte(variable.Value), &job); err != nil {
				return err
			}
		}
	}
	do := takenOf
	if other := c.jobs.Load(); other != nil {
		do = *other
	}
	result := do(&job)
	switch {
	case result == nil:
		return nil
	case result.Error != "":
		return c.endWith(ctx, pod, corev1.PodFailed, result)
	}
	return c.endWith(ctx, pod, corev1.PodSucceeded, result)
}

// takenOf returns the result of a job that takes a snapshot, or copies its disks.
func takenOf(job *launcher.Job) *launcher.JobResult {
	if job.Fill != nil {
		return &launcher.JobResult{Filled: true}
	}
	taken := &launcher.Taken{At: time.Unix(1000, 0).UTC(), Quiesced: true, AllocatedBytes: 1 << 20}
	for _, disk := range job.Take.Disks {
		taken.Disks = append(taken.Disks, launcher.Disk{Name: disk, Bytes: 64 << 20})
	}
	if job.Take.Memory {
		taken.Memory = &savedmemory.Memory{Size: 1 << 19, QEMU: "7.2.0"}
	}
	return &launcher.JobResult{Taken: taken}
}

// setJobs sets what the simulated jobs do.
func (c *cluster) setJobs(do func(*launcher.Job) *launcher.JobResult) { c.jobs.Store(&do) }

// takePod returns the Pod that takes a snapshot; nil if there is none.
func (c *cluster) takePod(id backend.SnapshotIdentity) *corev1.Pod {
	c.Helper()
	pods, err := c.api.CoreV1().Pods(id.Namespace).List(c.Context(), metav1.ListOptions{LabelSelector: labelSnapshot})
	if err != nil || len(pods.Items) > 1 {
		c.Fatalf("%d Pods, %v", len(pods.Items), err)
	}
	if len(pods.Items) == 0 {
		return nil
	}
	return &pods.Items[0]
}

func (c *cluster) snapshot(name string) backend.SnapshotIdentity {
	return backend.SnapshotIdentity{UID: uuid.NewUUID(), Namespace: c.namespaces[0], Name: name}
}

// untilSnapshot calls the driver as a controller does until a snapshot has a state.
func (c *cluster) untilSnapshot(id backend.SnapshotIdentity, machine backend.Machine, what string, reached func(backend.SnapshotState) bool) (state backend.SnapshotState) {
	c.Helper()
	harness.Eventually(c, what, func() bool {
		var err error
		if state, err = c.driver.ObserveSnapshot(c.Context(), id); err != nil && !errors.Is(err, backend.ErrNotFound) {
			c.Fatal(err)
		}
		if err == nil && reached(state) {
			return true
		}
		if !state.Busy {
			if err := c.driver.TakeSnapshot(c.Context(), id, backend.Source{Server: machine.Identity}); err != nil {
				c.Fatalf("TakeSnapshot: %v", err)
			}
		}
		return false
	})
	return state
}

func (c *cluster) deletesSnapshot(id backend.SnapshotIdentity) {
	c.Helper()
	harness.Eventually(c, "the snapshot is deleted", func() bool {
		err := c.driver.DeleteSnapshot(c.Context(), id)
		if err != nil && !errors.Is(err, backend.ErrInProgress) {
			c.Fatal(err)
		}
		return err == nil
	})
	if _, err := c.driver.ObserveSnapshot(c.Context(), id); !errors.Is(err, backend.ErrNotFound) {
		c.Errorf("after the deletion: %v", err)
	}
}

func isTaken(s backend.SnapshotState) bool { return s.Taken }

// A snapshot is one claim with its record, which any manager finds, and which is kept when the machine is deleted.
func TestSnapshotIsTaken(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	changed := make(chan backend.SnapshotIdentity, 100)
	c.driver.WatchSnapshots(func(id backend.SnapshotIdentity) {
		select {
		case changed <- id:
		default: // the test has enough of them
		}
	})
	machine, id := c.machine(uuid.NewUUID()), c.snapshot("before")
	machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}
	source := backend.Source{Server: machine.Identity}
	fails := func(what string, of backend.Source, want error) {
		t.Helper()
		if err := c.driver.TakeSnapshot(t.Context(), id, of); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	fails("no machine", source, backend.ErrNotFound)
	c.must("Create", c.driver.Create(t.Context(), machine))
	fails("before its first start", source, backend.ErrNotCreated)
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it runs", isRunning)
	state := c.untilSnapshot(id, machine, "it is taken", isTaken)
	want := backend.SnapshotState{Taken: true, TakenAt: time.Unix(1000, 0).UTC(), AllocatedBytes: 1 << 20, Quiesced: true,
		Disks: []backend.SnapshotDisk{{Name: "root", VirtualBytes: 64 << 20}, {Name: "data", VirtualBytes: 64 << 20}}}
	if diff := cmp.Diff(want, state); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	harness.Eventually(t, "the controller is notified", func() bool { return <-changed == id })
	if err := c.driver.TakeSnapshot(t.Context(), id, source); err != nil {
		t.Errorf("taken again: %v", err)
	}
	harness.Eventually(t, "its Pod is gone", func() bool { return c.takePod(id) == nil })
	if all, err := c.driver.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the machines are %+v, %v", all, err)
	}
	harness.Eventually(t, "the machine is deleted", func() bool {
		return c.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{}) == nil
	})
	c.open(t)
	if state, err := c.driver.ObserveSnapshot(t.Context(), id); err != nil || !state.Taken || state.Lost != "" {
		t.Errorf("another manager finds %+v, %v", state, err)
	}
	if left := c.leftovers(t); len(left) != 2 || !strings.HasPrefix(left[0], "PersistentVolumeClaim keelson-snapshot-") || !strings.HasPrefix(left[1], "Secret keelson-snapshot-") {
		t.Errorf("a snapshot is %q", left)
	}
	c.deletesSnapshot(id)
	c.nothingLeft()
}

// A snapshot has the memory of a machine that runs or is asleep.
func TestSnapshotWithMemory(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	source := backend.Source{Server: machine.Identity, Memory: true}
	takes := func(name string) {
		t.Helper()
		id := c.snapshot(name)
		harness.Eventually(t, name+" is taken", func() bool {
			if err := c.driver.TakeSnapshot(t.Context(), id, source); err != nil {
				t.Fatal(err)
			}
			state, err := c.driver.ObserveSnapshot(t.Context(), id)
			return err == nil && state.Taken && state.MemoryBytes == 1<<19
		})
		claim, _, err := c.driver.seenSnapshot(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := c.driver.snapshotRecord(t.Context(), c.driver.cache, claim)
		if err != nil || rec.Memory == nil || rec.Memory.QEMU != "7.2.0" || rec.Memory.Started.UID != machine.UID {
			t.Errorf("%s is %+v, %v", name, rec, err)
		}
		c.deletesSnapshot(id)
	}
	takes("running")
	harness.Eventually(t, "it is asleep", func() bool {
		c.must("Sleep", c.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
		server, err := c.driver.Observe(t.Context(), machine.Identity)
		return err == nil && server.State == backend.StateAsleep && server.Task == backend.TaskNone
	})
	takes("asleep")
	c.stop(machine)
	if err := c.driver.TakeSnapshot(t.Context(), c.snapshot("off"), source); !errors.Is(err, backend.ErrNotRunning) {
		t.Errorf("of a machine that is off: %v", err)
	}
	c.remove(machine)
	disks := c.machine(uuid.NewUUID())
	disks.DiskBytes, disks.Disks = 0, []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}
	c.runs(disks)
	if err := c.driver.TakeSnapshot(t.Context(), c.snapshot("disks"), backend.Source{Server: disks.Identity, Memory: true}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("of a machine without a root disk: %v", err)
	}
	c.remove(disks)
}

// The Pod that takes a snapshot is at the node of the machine, and one that has a failed attempt is followed by another.
func TestSnapshotFails(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine, id := c.running(), c.snapshot("before")
	c.setJobs(func(*launcher.Job) *launcher.JobResult { return &launcher.JobResult{Error: "the volume is full"} })
	failed := c.untilSnapshot(id, machine, "it has failed", func(s backend.SnapshotState) bool { return s.Failure != nil })
	if failed.Busy || failed.FailedAt.IsZero() || !strings.Contains(failed.Failure.Error(), "the volume is full") {
		t.Errorf("it is %+v", failed)
	}
	pod := c.takePod(id)
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if owner := metav1.GetControllerOf(pod); terms[0].MatchFields[0].Values[0] != nodeName || owner == nil || owner.UID != id.UID {
		t.Errorf("the Pod is %+v", pod)
	}
	c.setJobs(takenOf)
	c.untilSnapshot(id, machine, "it is taken", isTaken)
	c.deletesSnapshot(id)
	c.remove(machine)
}

// A machine that ends or starts meanwhile is copied again, at another place; one that has grown gets a larger volume.
func TestSnapshotBeginsAgain(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine, id := c.running(), c.snapshot("before")
	c.setJobs(func(*launcher.Job) *launcher.JobResult { return nil })
	isCopied := func(s backend.SnapshotState) bool { return s.Progress == "the disks are being copied" }
	c.untilSnapshot(id, machine, "the running machine is copied", isCopied)
	first := c.takePod(id)
	c.must("Stop", c.driver.Stop(t.Context(), machine.Identity, 0))
	var second *corev1.Pod
	c.untilSnapshot(id, machine, "the machine that is off is copied", func(s backend.SnapshotState) bool {
		second = c.takePod(id)
		return isCopied(s) && second != nil && second.UID != first.UID && second.DeletionTimestamp == nil
	})
	if second.Spec.Affinity != nil || second.Annotations[annotationSnapshotRun] != "" {
		t.Errorf("the second Pod is %+v", second)
	}
	c.deletesSnapshot(id) // while it is being taken
	if c.takePod(id) != nil {
		t.Error("the Pod is left over")
	}
	c.untilSnapshot(id, machine, "it is copied again", isCopied)
	before, err := c.api.CoreV1().PersistentVolumeClaims(id.Namespace).Get(t.Context(), snapshotName(id.UID), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	machine.DiskBytes, machine.Hash = 1<<30, "2"
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it runs", isRunning)
	c.untilSnapshot(id, machine, "the running machine is copied, instead of the one that was off", func(s backend.SnapshotState) bool {
		pod := c.takePod(id)
		return isCopied(s) && pod != nil && pod.Annotations[annotationSnapshotRun] != ""
	})
	c.setJobs(takenOf)
	c.untilSnapshot(id, machine, "it is taken", isTaken)
	after, err := c.api.CoreV1().PersistentVolumeClaims(id.Namespace).Get(t.Context(), snapshotName(id.UID), metav1.GetOptions{})
	if err != nil || after.Spec.Resources.Requests.Storage().Cmp(*before.Spec.Resources.Requests.Storage()) <= 0 {
		t.Errorf("the volume has %v, %v", after.Spec.Resources.Requests, err)
	}
	c.deletesSnapshot(id)
	c.remove(machine)
}

// The deletion of a machine ends an attempt to take a snapshot of it, whose Pod would keep its claims, and keeps a snapshot that is complete.
func TestMachineDeletedDuringASnapshot(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	for _, isComplete := range []bool{false, true} {
		machine, id := c.running(), c.snapshot("before")
		c.setJobs(func(*launcher.Job) *launcher.JobResult { return nil })
		c.untilSnapshot(id, machine, "it is copied", func(s backend.SnapshotState) bool { return s.Progress == "the disks are being copied" })
		if isComplete {
			c.setJobs(takenOf)
			harness.Eventually(t, "it is complete", func() bool {
				state, err := c.driver.ObserveSnapshot(t.Context(), id)
				return err == nil && state.Progress == "the disks are copied"
			})
		}
		c.remove(machine)
		if c.takePod(id) != nil {
			t.Error("its Pod is left over")
		}
		if state, err := c.driver.ObserveSnapshot(t.Context(), id); err != nil || state.Taken != isComplete {
			t.Errorf("complete: %t: %+v, %v", isComplete, state, err)
		}
		c.deletesSnapshot(id)
	}
}

// A snapshot is kept while a machine is being made of it.
func TestSnapshotInUseIsKept(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine, id := c.running(), c.snapshot("before")
	c.untilSnapshot(id, machine, "it is taken", isTaken)
	c.setJobs(func(*launcher.Job) *launcher.JobResult { return nil })
	user := newJobPod(metav1.ObjectMeta{
		Namespace: id.Namespace, Name: "keelson-fill", Labels: map[string]string{labelSnapshot: string(id.UID), labelCluster: "cluster"},
	}, launcher.Job{Fill: &launcher.Fill{}}, "keelson-launcher:v1", nil)
	if _, err := c.api.CoreV1().Pods(id.Namespace).Create(t.Context(), user, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.driver.DeleteSnapshot(t.Context(), id); !errors.Is(err, backend.ErrInProgress) || !strings.Contains(err.Error(), "keelson-fill") {
		t.Errorf("while it is used: %v", err)
	}
	c.setJobs(func(*launcher.Job) *launcher.JobResult { return &launcher.JobResult{Error: "it has failed"} })
	c.deletesSnapshot(id)
	c.remove(machine)
}

func TestDescribeSnapshot(t *testing.T) {
	now := time.Unix(10_000, 0)
	machine := newMachine()
	machine.DiskBytes = 1 << 30
	claim := newSnapshotClaim(newSnapshotIdentity(), &machine, false)
	run := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "run"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	newTake := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := newTakePod(newSnapshotIdentity(), &snapshotSource{machine: &machine, pod: run}, "launcher:v1")
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		change(pod)
		return pod
	}
	status := func(phase corev1.PodPhase, state corev1.ContainerState) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.ContainerStatuses = phase, []corev1.ContainerStatus{{Name: container, State: state}}
		}
	}
	terminated := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message, FinishedAt: metav1.NewTime(now), ExitCode: 1}}
	}
	for name, test := range map[string]struct {
		pod, run *corev1.Pod
		busy     bool
		says     string
		fails    string
	}{
		"it has no Pod yet": {nil, run, false, "waits for its volume", ""},
		"its Pod is new":    {newTake(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now) }), run, true, "is starting", ""},
		"it has no node": {newTake(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no volume"}}
		}), run, true, "waits for a node: no volume", ""},
		"its image is missing": {newTake(status(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no image"}})), run, true, "is starting: ErrImagePull: no image", ""},
		"it copies":            {newTake(status(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})), run, true, "the disks are being copied", ""},
		"the machine has ended": {newTake(status(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})), nil, false,
			"the copy begins again", ""},
		"another run":       {newTake(func(*corev1.Pod) {}), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}}, false, "the copy begins again", ""},
		"it is complete":    {newTake(status(corev1.PodSucceeded, terminated(`{"taken":{}}`))), nil, false, "the disks are copied", ""},
		"it has failed":     {newTake(status(corev1.PodFailed, terminated(`{"error":"full"}`))), run, false, "", "take the snapshot: full"},
		"it was killed":     {newTake(status(corev1.PodFailed, terminated(""))), run, false, "", "has ended with status 1"},
		"it was evicted":    {newTake(func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }), run, false, "", "was ended: Evicted"},
		"it is being ended": {newTake(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), run, true, "is ending", ""},
		"its node is lost":  {newTake(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)} }), run, true, "does not confirm", ""},
	} {
		state := describeSnapshot(claim, nil, test.pod, test.run, now)
		if state.Busy != test.busy || state.Taken || !strings.Contains(state.Progress, test.says) || (state.Failure != nil) != (test.fails != "") {
			t.Errorf("%s: %+v", name, state)
		}
		if state.Failure != nil && (!strings.Contains(state.Failure.Error(), test.fails) || state.FailedAt.IsZero()) {
			t.Errorf("%s: it fails with %v at %v", name, state.Failure, state.FailedAt)
		}
	}
	taken := &snapshotRecord{AllocatedBytes: 1}
	if state := describeSnapshot(claim, taken, newTake(func(*corev1.Pod) {}), nil, now); !state.Taken || state.Lost != "" {
		t.Errorf("taken: %+v", state)
	}
	claim.Status.Phase = corev1.ClaimLost
	if state := describeSnapshot(claim, taken, nil, nil, now); !strings.Contains(state.Lost, "is gone") {
		t.Errorf("lost: %+v", state)
	}
	if id := ofSnapshot(newTake(func(*corev1.Pod) {})); id.UID != machine.UID {
		t.Errorf("it is of %+v", id)
	}
}
