//go:build soak

package leaders

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterprovisionerv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/kinds"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// hosted are objects that are processes on this machine: a manager's fence blocks its writes to the
// API, but not to them. Two VirtualMachines and a Cluster never change, so their processes must
// stay the same; before each fault a VirtualMachine is created, so that the leader is working on
// it.
type hosted struct {
	image  string
	host   *host
	steady []client.Object
	fresh  []client.Object
}

// startHosted creates the permanent objects and waits until they run. The managers must be running.
func (w *world) startHosted(t *testing.T) *hosted {
	t.Helper()
	h := &hosted{image: w.image, host: watchHost(t, w.StateDir(t))}
	h.steady = []client.Object{h.newMachine("steady-0"), h.newMachine("steady-1"),
		&clusterprovisionerv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "steady"}}}
	for _, object := range h.steady {
		if err := w.WithWatch.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitReady(t, h.steady)
	harness.Eventually(t, "the permanent objects run", func() bool {
		return len(h.host.of(h.steady[0])) == 1 && len(h.host.of(h.steady[1])) == 1 && len(h.host.of(h.steady[2])) == kinds.Components
	})
	return h
}

// newMachine returns a machine with nothing to boot: it stays in its firmware, and is ready as soon
// as it runs.
func (h *hosted) newMachine(name string) *virtualmachinev1alpha1.VirtualMachine {
	return &virtualmachinev1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: virtualmachinev1alpha1.VirtualMachineSpec{
			Driver:   qemu.Name,
			Resource: virtualmachinev1alpha1.Resources{CPU: resource.MustParse("1"), Memory: resource.MustParse("32Mi")},
			Image:    &virtualmachinev1alpha1.Image{ImageSource: virtualmachinev1alpha1.ImageSource{Path: h.image, Format: "raw"}, Agent: ptr.To(false)},
			// Firmware ignores the power button.
			TerminationGracePeriodSeconds: ptr.To[int64](0),
		},
	}
}

// awaitReady waits until VirtualMachines and Clusters are ready.
func (w *world) awaitReady(t *testing.T, objects []client.Object) {
	t.Helper()
	for _, object := range objects {
		harness.Eventually(t, object.GetName()+" is ready", func() bool {
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			switch object := object.(type) {
			case *virtualmachinev1alpha1.VirtualMachine:
				return meta.IsStatusConditionTrue(object.Status.Conditions, virtualmachinev1alpha1.ConditionReady)
			case *clusterprovisionerv1alpha1.Cluster:
				return meta.IsStatusConditionTrue(object.Status.Conditions, clusterprovisionerv1alpha1.ConditionReady)
			}
			return false
		})
	}
}

// beforeFault creates a machine without waiting for it.
func (h *hosted) beforeFault(t *testing.T, w *world) {
	t.Helper()
	machine := h.newMachine(fmt.Sprintf("fresh-%d", len(h.fresh)))
	if err := w.WithWatch.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	h.fresh = append(h.fresh, machine)
}

// afterFault waits until the next leader has adopted the machine of the previous one, and deletes
// it.
func (h *hosted) afterFault(t *testing.T, w *world) {
	t.Helper()
	machine := h.fresh[len(h.fresh)-1]
	w.awaitReady(t, []client.Object{machine})
	h.check(t)
	if err := w.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
}

// check checks that no process was started twice.
func (h *hosted) check(t *testing.T) {
	t.Helper()
	for _, object := range slices.Concat(h.steady, h.fresh) {
		for place, starts := range h.host.of(object) {
			if len(starts) > 1 {
				t.Errorf("%T %s: %s was started %d times: %v", object, object.GetName(), place, len(starts), starts)
			}
		}
	}
}

// checkEnd checks that the permanent objects run, that no other machine does, and that there were
// no duplicates.
func (h *hosted) checkEnd(t *testing.T) {
	t.Helper()
	h.check(t)
	h.host.stop()
	running := h.host.look()
	for _, object := range h.steady {
		for place, starts := range h.host.of(object) {
			if !slices.Equal(running[place], slices.Collect(maps.Keys(starts))) {
				t.Errorf("%T %s: %s was %v, and is %v", object, object.GetName(), place, starts, running[place])
			}
			delete(running, place)
		}
	}
	// The permanent machines keep their network.
	network := place{filepath.Join(manager.MachinesDir(h.host.dir), "networks", namespace), "network." + namespace}
	if starts := h.host.seen[network]; len(starts) != 1 || len(running[network]) != 1 {
		t.Errorf("the network of the machines was started as %v, and is %v", starts, running[network])
	}
	delete(running, network)
	for place, processes := range running {
		if strings.HasPrefix(place.dir, manager.MachinesDir(h.host.dir)) {
			t.Errorf("a deleted machine has the processes %v in %s", processes, place.dir)
		}
	}
	for _, twice := range h.host.twice {
		t.Error(twice)
	}
	t.Logf("%d processes in %d places on this machine were seen, in %d scans", h.host.count(), len(h.host.seen), h.host.looks)
}

// place identifies something that may run only once: a component in the directory of its cluster, a
// machine in its folder.
type place struct{ dir, id string }

func (p place) String() string { return p.id + " in " + p.dir }

// start is a process. The nonce from its start distinguishes it from an earlier one.
type start struct{ pid, nonce string }

// host records all processes in a state directory.
type host struct {
	dir  string
	stop func()

	mu    sync.Mutex
	seen  map[place]map[start]bool
	twice []string
	looks int
}

// lookEvery is the interval between scans.
const lookEvery = 20 * time.Millisecond

// watchHost scans the processes of a directory until it is stopped, or the test ends.
func watchHost(t *testing.T, dir string) *host {
	t.Helper()
	h := &host{dir: dir, seen: map[place]map[start]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	h.stop = func() { cancel(); running.Wait() }
	t.Cleanup(h.stop)
	running.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			h.note(h.look())
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return h
}

// look returns the running processes.
func (h *host) look() map[place][]start {
	all := map[place][]start{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err) // Linux always has /proc
	}
	for _, entry := range entries {
		process := filepath.Join("/proc", entry.Name())
		dir := transcript.Place(process)
		if !strings.HasPrefix(dir, h.dir+"/") {
			continue // not a process, just ended, or of another directory
		}
		environ, err := os.ReadFile(filepath.Join(process, "environ"))
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			if mark, found := strings.CutPrefix(string(entry), "KEELSON_PROCESS="); found {
				id, nonce, _ := strings.Cut(mark, ":")
				where := place{dir, id}
				all[where] = append(all[where], start{filepath.Base(process), nonce})
			}
		}
	}
	return all
}

func (h *host) note(running map[place][]start) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	for where, starts := range running {
		if len(starts) > 1 {
			h.twice = append(h.twice, fmt.Sprintf("concurrent processes of %v: %v", where, starts))
		}
		if h.seen[where] == nil {
			h.seen[where] = map[start]bool{}
		}
		for _, start := range starts {
			h.seen[where][start] = true
		}
	}
}

// of returns all processes that an object has had.
func (h *host) of(object client.Object) map[place]map[start]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[place]map[start]bool{}
	for where, starts := range h.seen {
		if slices.Contains(strings.Split(where.dir, "/"), string(object.GetUID())) {
			all[where] = maps.Clone(starts)
		}
	}
	return all
}

// count returns the total number of processes.
func (h *host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := 0
	for _, starts := range h.seen {
		count += len(starts)
	}
	return count
}
