package pod

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestLiveChanges(t *testing.T) {
	const mebi = 1 << 20
	grown := []backend.Disk{{Name: rootDisk, SizeBytes: 128 * mebi}}
	for name, test := range map[string]struct {
		change func(*world)
		want   liveChange
	}{
		"nothing":                      {func(*world) {}, liveChange{}},
		"less memory":                  {func(w *world) { w.rec.Machine.MemoryBytes = 256 * mebi }, liveChange{memory: 256 * mebi}},
		"less memory, which it has":    {func(w *world) { w.rec.Machine.MemoryBytes, w.rec.BalloonBytes = 256*mebi, 256*mebi }, liveChange{}},
		"the memory of its start":      {func(w *world) { w.rec.BalloonBytes = 256 * mebi }, liveChange{memory: 512 * mebi}},
		"more memory than the Pod":     {func(w *world) { w.rec.Machine.MemoryBytes = 1024 * mebi }, liveChange{}},
		"less, then more than the Pod": {func(w *world) { w.rec.Machine.MemoryBytes, w.rec.BalloonBytes = 1024*mebi, 256*mebi }, liveChange{memory: 512 * mebi}},
		"a larger root disk":           {func(w *world) { w.rec.Machine.DiskBytes = 128 * mebi }, liveChange{disks: grown}},
		"a smaller root disk":          {func(w *world) { w.rec.Machine.DiskBytes = 32 * mebi }, liveChange{}},
		"a claim that does not grow":   {func(w *world) { w.rec.Machine.DiskBytes, w.rec.DiskRefused = 128*mebi, "no" }, liveChange{}},
		"a new disk": {func(w *world) {
			w.rec.Machine.Disks = append(slices.Clone(w.rec.Machine.Disks), backend.Disk{Name: "new", SizeBytes: mebi})
		}, liveChange{}},
		"a larger disk": {func(w *world) { w.rec.Machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 2 * mebi}} },
			liveChange{disks: []backend.Disk{{Name: "data", SizeBytes: 2 * mebi}}}},
		"another port":          {func(w *world) { w.rec.Machine.Ports = w.rec.Machine.Ports[:1] }, liveChange{ports: true}},
		"another run":           {func(w *world) { w.rec.Machine.MemoryBytes, w.rec.Run = 256*mebi, "two" }, liveChange{}},
		"an unknown start":      {func(w *world) { w.rec.Machine.MemoryBytes, w.rec.Started = 256*mebi, nil }, liveChange{}},
		"it is to be stopped":   {func(w *world) { w.rec.Machine.MemoryBytes, w.rec.Stopped = 256*mebi, true }, liveChange{}},
		"its container waits":   {func(w *world) { w.rec.Machine.MemoryBytes = 256 * mebi; w.waiting("", "") }, liveChange{}},
		"there is no Pod of it": {func(w *world) { w.rec.Machine.MemoryBytes, w.pod = 256*mebi, nil }, liveChange{}},
	} {
		w := newWorld(t)
		w.rec.Machine.DiskBytes, w.rec.Machine.Disks = 64*mebi, []backend.Disk{{Name: "data", SizeBytes: mebi}}
		started := w.rec.Machine
		w.rec.Started = &started
		test.change(w)
		if diff := cmp.Diff(test.want, liveChanges(&w.rec, w.pod), cmp.AllowUnexported(liveChange{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A machine changes while it runs, whichever manager began that.
func TestRunningMachineChanges(t *testing.T) {
	c := newCluster(t)
	c.openQuick()
	machine := c.machine("0b5b4d8e-0000-4000-8000-0000000000dd")
	machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 8 << 20}}
	c.must("Create", c.driver.Create(t.Context(), machine))
	c.start(machine)
	start := machine.MemoryBytes
	observe := func(hash string, pending ...string) backend.Server {
		t.Helper()
		machine.Hash = hash
		c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
		server, err := c.driver.Observe(t.Context(), machine.Identity)
		if err != nil || server.Hash != hash || !slices.Equal(server.Pending, pending) {
			t.Errorf("with the spec %s, pending are %q: %+v, %v", hash, server.Pending, server, err)
		}
		return server
	}
	machine.MemoryBytes = start / 2
	run := observe("2").Run
	machine.MemoryBytes = 2 * start
	observe("3", "resource.memory")
	want := []string{fmt.Sprint(start / 2), fmt.Sprint(start)}
	if got := c.launchers.made(); !slices.Equal(got, want) {
		t.Errorf("the launcher was asked for %q, want %q", got, want)
	}

	machine.Ports = []v1alpha1.Port{{Name: "web", Port: 80, Protocol: v1alpha1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: v1alpha1.ProtocolUDP}}
	if server := observe("ports", "resource.memory"); len(server.Endpoints) != 2 {
		t.Errorf("with new ports, it has the endpoints %+v", server.Endpoints)
	}
	want = append(want, "tcp/80 udp/53")

	c.expands.Store(false)
	machine.MemoryBytes, machine.DiskBytes, machine.Disks = start, 128<<20, []backend.Disk{{Name: "data", SizeBytes: 16 << 20}}
	if server := observe("4"); len(server.Disks) != 2 {
		t.Errorf("while its volumes are expanded: %+v", server.Disks)
	}
	c.open(t)
	c.expands.Store(true)
	c.until(machine, "its disks have grown", func(s backend.Server) bool { return len(s.Disks) == 0 && len(s.Pending) == 0 && s.Run == run })
	want = append(want, fmt.Sprint("root ", 128<<20), fmt.Sprint("data ", 16<<20))
	if got := c.launchers.made(); !slices.Equal(got, want) {
		t.Errorf("the launcher was asked for %q, want %q", got, want)
	}

	c.launchers.change(func(s *simulated) { s.old = true })
	machine.MemoryBytes, machine.DiskBytes, machine.Ports = start/2, 256<<20, nil
	machine.Hash = "5"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.until(machine, "a launcher of an earlier version changes nothing", func(s backend.Server) bool {
		return slices.Equal(s.Pending, []string{"resource.memory", fieldRootDisk, "ports"}) && strings.Contains(s.PendingReason, "earlier version")
	})
	c.stop(machine)
	c.start(machine)
	c.until(machine, "nothing is pending", func(s backend.Server) bool { return len(s.Disks) == 0 && len(s.Pending) == 0 && s.Run != run })
	c.stop(machine)
	c.must("Delete", c.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{}))
}

// openQuick opens the driver with a short liveInterval, until the end of the test.
func (c *cluster) openQuick() {
	c.Helper()
	before := liveInterval
	liveInterval = 50 * time.Millisecond
	c.Cleanup(func() {
		_ = c.driver.Close() // nothing reads it any more
		liveInterval = before
	})
	c.open(c.T)
}

// A manager that ends in the middle of a change is followed by one that completes it.
func TestChangeIsInterrupted(t *testing.T) {
	c := newCluster(t)
	reached := make(chan struct{}, 1)
	var until atomic.Value // the step that the manager does not survive
	step = func(name string) {
		if until.CompareAndSwap(name, "") {
			c.driver.cancel()
			reached <- struct{}{}
		}
	}
	t.Cleanup(func() { step = func(string) {} }) // after the driver was closed
	c.openQuick()
	machine := c.running()
	start := machine.MemoryBytes
	for i, at := range []string{"spec recorded", "memory changed", "claim grown", "ports changed", "disk grown", "changes recorded"} {
		until.Store(at)
		machine.Hash, machine.MemoryBytes, machine.DiskBytes = at, start-int64(i+1)<<20, machine.DiskBytes+16<<20
		machine.Ports = []v1alpha1.Port{{Name: "a", Port: int32(1000 + i), Protocol: v1alpha1.ProtocolTCP}}
		_ = c.driver.Reconfigure(t.Context(), machine) // it may be interrupted
		select {
		case <-reached:
		case <-time.After(harness.WaitTimeout):
			t.Fatalf("there is no step %q", at)
		}
		c.open(t)
		c.until(machine, "the change is complete after "+at, func(s backend.Server) bool {
			return s.Hash == at && len(s.Pending) == 0 && len(s.Disks) == 0
		})
		made := c.launchers.made()
		for _, want := range []string{fmt.Sprint(machine.MemoryBytes), fmt.Sprint("tcp/", machine.Ports[0].Port), fmt.Sprint("root ", machine.DiskBytes)} {
			if !slices.Contains(made, want) {
				t.Errorf("after %s, the launcher was asked for %q, and not for %s", at, made, want)
			}
		}
	}
	c.stop(machine)
	c.must("Delete", c.driver.Delete(t.Context(), machine.Identity, backend.DeleteOptions{}))
}
