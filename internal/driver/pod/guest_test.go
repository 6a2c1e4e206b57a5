package pod

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// The reason of a launcher whose guest is halted is in the machine, also for the next manager, until the guest runs. It can be stopped
// meanwhile.
func TestHalted(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	tells := func(s backend.Server) bool { return isRunning(s) && strings.Contains(s.Message, "is full") }
	runs := func(s backend.Server) bool {
		return isRunning(s) && s.Message == "" && s.Agent == backend.AgentConnected
	}
	c.until(machine, "it runs", runs)
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{Halted: "the volume of the root disk is full"} })
	c.until(machine, "it is halted", tells)
	c.open(t)
	c.until(machine, "the next manager finds out", tells)
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{} })
	c.until(machine, "it goes on", runs)
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{Halted: "the volume of the root disk is full"} })
	c.until(machine, "it is halted again", tells)
	c.stop(machine)
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{} })
	harness.Eventually(t, "no launcher is asked", func() bool {
		c.driver.mu.Lock()
		defer c.driver.mu.Unlock()
		return len(c.driver.guests) == 0
	})
	c.remove(machine)
}

// The resets of a silent guest are in the machine, also for the next manager, until the guest answers.
func TestSilentGuest(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	c.until(machine, "it runs", func(s backend.Server) bool { return s.Agent == backend.AgentConnected })
	silent := func(want backend.Silence) func(s backend.Server) bool {
		return func(s backend.Server) bool {
			return isRunning(s) && s.Agent == backend.AgentWaiting && s.Silence != nil && *s.Silence == want
		}
	}
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{Silence: &owner.Silence{Resets: 1, After: time.Minute}} })
	c.until(machine, "it was reset", silent(backend.Silence{Resets: 1, After: time.Minute}))
	c.launchers.change(func(s *simulated) {
		s.guest = launcher.Guest{Silence: &owner.Silence{Resets: 3, After: time.Hour, GaveUp: true}}
	})
	c.open(t)
	c.until(machine, "resets did not help, and the next manager finds out", silent(backend.Silence{Resets: 3, After: time.Hour, GaveUp: true}))
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{} })
	c.until(machine, "it answers", func(s backend.Server) bool { return s.Agent == backend.AgentConnected && s.Silence == nil })
	c.remove(machine)
}

// A running machine gets no memory with which its guest could not boot again. The spec is rejected, and nothing of it applied.
func TestTooLittleMemory(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	c.until(machine, "it runs", isRunning)
	c.launchers.change(func(s *simulated) { s.guest = launcher.Guest{MinimumMemory: 96 << 20} })
	changed := machine
	changed.Hash, changed.MemoryBytes, changed.Ports = "2", 64<<20, nil
	var wrong *backend.FieldError
	if err := c.driver.Reconfigure(t.Context(), changed); !errors.As(err, &wrong) || wrong.Field != "spec.resource.memory" || !strings.Contains(wrong.Message, "at least 96 MiB") {
		t.Errorf("Reconfigure: %v", err)
	}
	if server, err := c.driver.Observe(t.Context(), machine.Identity); err != nil || server.Hash != machine.Hash || len(server.Pending) > 0 {
		t.Errorf("it was accepted: %+v, %v", server, err)
	}
	changed.MemoryBytes = 96 << 20
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), changed))
	c.until(machine, "it has less memory", func(s backend.Server) bool { return s.Hash == "2" && len(s.Pending) == 0 })
	c.remove(machine)
}

func TestMayBeHindered(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		want   bool
	}{
		"it is ready":           {func(*world) {}, false},
		"it is not ready":       {func(w *world) { w.pod.Status.Conditions[1].Status = corev1.ConditionFalse }, true},
		"it is paused":          {func(w *world) { w.pod.Status.Conditions[1].Status, w.rec.PausedRun = corev1.ConditionFalse, "one" }, false},
		"another run is paused": {func(w *world) { w.pod.Status.Conditions[1].Status, w.rec.PausedRun = corev1.ConditionFalse, "two" }, true},
		"it is being stopped": {func(w *world) {
			w.pod.Status.Conditions[1].Status, w.pod.DeletionTimestamp = corev1.ConditionFalse, ptr.To(metav1.Now())
		}, false},
		"it has not started": {func(w *world) { w.waiting("ContainerCreating", "") }, false},
		"its Pod is gone":    {func(w *world) { w.pod = nil }, false},
	} {
		w := newWorld(t)
		test.change(w)
		secret := newSecret(recordNamespace, &w.rec, nil)
		if got := mayBeHindered(secret, w.pod); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
