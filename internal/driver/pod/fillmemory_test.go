package pod

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A machine that is restored with memory is asleep with it, as it was started then, whether it was off or asleep before.
func TestRestoreWithMemory(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	started := machine
	started.MemoryBytes = 192 << 20
	id := c.takenWith(&machine, &snapshotMemory{Memory: savedmemory.Memory{Size: 4096, SHA256: "digest"}, Started: started})
	for token, before := range map[string]func() error{
		"off":    func() error { return c.driver.Stop(t.Context(), machine.Identity, 0) },
		"asleep": func() error { return c.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}) },
	} {
		harness.Eventually(t, "it is requested, as a controller does", func() bool {
			err := before()
			if !apierrors.IsConflict(err) { // with a change of the memory, which the driver records in the background
				c.must(token, err)
			}
			return !apierrors.IsConflict(err)
		})
		c.until(machine, "it is "+token, func(s backend.Server) bool { return !s.IsOn() && s.Task == backend.TaskNone })
		var job launcher.Job
		c.setJobs(func(given *launcher.Job) *launcher.JobResult {
			job = *given
			return &launcher.JobResult{Filled: true}
		})
		c.must("RestoreServer", c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: token, Snapshot: id, Memory: true}))
		c.until(machine, "it is asleep", func(s backend.Server) bool {
			return s.Restored == token && s.State == backend.StateAsleep && s.SavedBytes == 4096 && s.Task == backend.TaskNone
		})
		c.must("Start", c.driver.Start(t.Context(), machine))
		c.until(machine, "it runs", isRunning)
		definition := c.definition(machine)
		if !definition.Asleep || definition.MemoryBytes != started.MemoryBytes || job.Fill.Memory == nil || job.Fill.Memory.SHA256 != "digest" || job.Fill.Epoch != definition.Epoch {
			t.Errorf("it runs %+v after the job %+v", definition, job.Fill)
		}
	}
	c.remove(machine)
	c.deleteTaken(id)
}

// A machine boots if it does not have the disks of the snapshot, or is a new one with other processors, and its end says why.
func TestMemoryIsNotUsed(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	started := machine
	started.Disks = []backend.Disk{{Name: "gone", SizeBytes: 1 << 20}}
	id := c.takenWith(&machine, &snapshotMemory{Started: started})
	lost := func(of backend.Machine, text string) {
		t.Helper()
		c.until(of, "its memory is lost", func(s backend.Server) bool {
			return s.State == backend.StateStopped && s.Task == backend.TaskNone && s.Ended != nil && s.Ended.Cause == backend.CauseMemoryLost && strings.Contains(s.Ended.Message, text)
		})
	}
	c.stop(machine)
	c.must("RestoreServer", c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: "once", Snapshot: id, Memory: true}))
	lost(machine, "the disks")
	c.must("Stop", c.driver.Stop(t.Context(), machine.Identity, 0))
	c.until(machine, "it was stopped", func(s backend.Server) bool { return s.Ended != nil && s.Ended.Cause == backend.CauseRequested })
	fork := c.forkOf(id)
	fork.MilliCPU += 1000
	c.must("Create", c.driver.Create(t.Context(), fork))
	lost(fork, "other processors")
	c.must("Start", c.driver.Start(t.Context(), fork))
	c.until(fork, "it boots", isRunning)
	if definition := c.definition(fork); definition.Asleep {
		t.Errorf("it runs %+v", definition)
	}
	c.remove(machine)
	c.remove(fork)
	c.deleteTaken(id)
}

// What keeps a new machine from going on with the memory in a snapshot is said; other differences do not matter.
func TestMemoryOfAFork(t *testing.T) {
	given := newMachine()
	given.DiskBytes, given.Disks, given.Image = 64<<20, []backend.Disk{{Name: "data", SizeBytes: 32 << 20}}, nil
	taken := func() *snapshotRecord {
		return &snapshotRecord{
			Disks:  []snapshotDisk{{Name: rootDisk, VirtualBytes: 64 << 20}, {Name: "data", VirtualBytes: 32 << 20}},
			Memory: &snapshotMemory{Started: given},
		}
	}
	for name, test := range map[string]struct {
		change func(*backend.Machine, *snapshotRecord)
		says   string
	}{
		"as the first one":     {func(*backend.Machine, *snapshotRecord) {}, ""},
		"another name":         {func(m *backend.Machine, _ *snapshotRecord) { m.UID, m.Name = "other", "other" }, ""},
		"other ports":          {func(m *backend.Machine, _ *snapshotRecord) { m.Ports = nil }, ""},
		"no memory":            {func(m *backend.Machine, r *snapshotRecord) { r.Memory, m.MilliCPU = nil, 1000 }, ""},
		"an image":             {func(_ *backend.Machine, r *snapshotRecord) { r.Image = &v1alpha1.Image{Container: "disk:v1"} }, "only the default guest"},
		"ephemeral disks":      {func(m *backend.Machine, _ *snapshotRecord) { m.Pod.Storage = v1alpha1.StorageEphemeral }, "no volumes"},
		"fewer processors":     {func(m *backend.Machine, _ *snapshotRecord) { m.MilliCPU = 1000 }, "other processors"},
		"another model":        {func(m *backend.Machine, _ *snapshotRecord) { m.CPUModel = "qemu64" }, "other processors"},
		"more memory":          {func(m *backend.Machine, _ *snapshotRecord) { m.MemoryBytes = 1 << 30 }, "1024 MiB of memory"},
		"a display":            {func(m *backend.Machine, _ *snapshotRecord) { m.Display = "vnc" }, "has a display"},
		"a larger root disk":   {func(m *backend.Machine, _ *snapshotRecord) { m.DiskBytes = 1 << 30 }, "root disk"},
		"without another disk": {func(m *backend.Machine, _ *snapshotRecord) { m.Disks = nil }, "the disk data"},
	} {
		machine, snapshot := given, taken()
		test.change(&machine, snapshot)
		if got := snapshot.differsFrom(&machine); !strings.Contains(got, test.says) || (got == "") != (test.says == "") {
			t.Errorf("%s: %q, want %q", name, got, test.says)
		}
	}
}

// A new machine of a snapshot with memory is created asleep with it, needs the snapshot no longer, and wakes as itself. If it is stopped before, the
// memory is void.
func TestForkWithMemory(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	first := c.machine(uuid.NewUUID())
	first.Name = "first"
	id := c.takenWith(&first, &snapshotMemory{Memory: savedmemory.Memory{Size: 4096, SHA256: "digest"}, Started: first})
	for _, isStopped := range []bool{false, true} {
		var job launcher.Job
		c.setJobs(func(given *launcher.Job) *launcher.JobResult {
			job = *given
			return &launcher.JobResult{Filled: true}
		})
		fork := c.forkOf(id)
		fork.Ports = []v1alpha1.Port{{Name: "web", Port: 8080, Protocol: v1alpha1.ProtocolTCP}}
		fork.Seed = &backend.Seed{UserData: "of the fork"}
		c.must("Create", c.driver.Create(t.Context(), fork))
		c.until(fork, "it is asleep", func(s backend.Server) bool {
			return s.State == backend.StateAsleep && s.SavedBytes == 4096 && s.Task == backend.TaskNone && s.Ended == nil
		})
		of := launcher.Identity{UID: string(first.UID), Namespace: first.Namespace, Name: "first"}
		if job.Fill == nil || job.Fill.Memory == nil || job.Fill.Memory.SHA256 != "digest" || job.Fill.Of == nil || *job.Fill.Of != of || job.Fill.Epoch == "" {
			t.Fatalf("the job is %+v", job.Fill)
		}
		c.open(t) // another manager continues
		if isStopped {
			c.stop(fork)
		}
		c.must("Start", c.driver.Start(t.Context(), fork))
		server := c.until(fork, "it runs", isRunning)
		definition := c.definition(fork)
		if definition.Asleep == isStopped || (definition.Epoch == job.Fill.Epoch) == isStopped || definition.UID != string(fork.UID) || len(definition.Ports) != 1 || len(server.Pending) > 0 {
			t.Errorf("stopped before: %t; it runs %+v, and waits for %v", isStopped, definition, server.Pending)
		}
		c.remove(fork)
	}
	c.deleteTaken(id)
	c.nothingLeft()
}

// What a fill records survives.
func TestFillIsRecorded(t *testing.T) {
	rec := &record{Machine: newMachine(), Fill: &fill{Token: "once", Memory: &snapshotMemory{Memory: savedmemory.Memory{Size: 1}, Started: newMachine(), BalloonBytes: 64 << 20}}}
	var read record
	if err := json.Unmarshal(mustJSON(rec), &read); err != nil || read.Fill.Memory.Size != 1 || read.Fill.Memory.Started.UID != rec.Machine.UID {
		t.Errorf("got %+v, %v", read.Fill, err)
	}
	read.endFill("", nil, time.Now())
	if !read.isAsleep(nil) || read.Restored != "once" || read.Fill != nil || read.BalloonBytes != 64<<20 {
		t.Errorf("got %+v", read)
	}
}
