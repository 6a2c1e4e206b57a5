package virtualmachine

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestSleep(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.Hold(backend.TaskSleep)
	w.Change(withAction(v1alpha1.ActionAsleep))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonFallingAsleep)
	w.backend.Release(backend.TaskSleep)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
	status := w.Object().Status
	if status.Server.State != v1alpha1.ServerAsleep || status.PrintableStatus != v1alpha1.StatusAsleep || status.Server.StartedAt != nil || status.Server.Usage != nil {
		t.Errorf("the server is %+v, in a word %s", status.Server, status.PrintableStatus)
	}
	// What changes meanwhile is applied when it is awake.
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.Memory = resource.MustParse("3Gi") })
	w.Restart()
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
	w.expectCalls("Sleep")

	w.Change(withAction(v1alpha1.ActionActive))
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls("Start", "Reconfigure")
	if got := w.Object().Status.Restarts; got != 0 || len(w.events()) > 0 {
		t.Errorf("sleeping counts as %d restarts", got)
	}

	// To shut down, the guest has to be awake.
	w.Change(withAction(v1alpha1.ActionAsleep))
	w.reconcileUntilStable()
	w.Change(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.expectCalls("Sleep", "Start", "Stop")

	// A machine that is off has nothing to save.
	w.Change(withAction(v1alpha1.ActionAsleep))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.expectCalls()
}

// A failure to save its memory leaves the machine on, and is reported and retried.
func TestSleepThatFails(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.Fail("Sleep", errors.New("no space left on device"))
	w.Change(withAction(v1alpha1.ActionAsleep))
	_, err := w.Reconcile(t.Context(), w.Object())
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("Reconcile: %v", err)
	}
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonPowerFailed)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonAsleep)
}

// Memory that cannot be used is reported once, whatever the restart policy is, and the machine boots.
func TestLostMemory(t *testing.T) {
	w := newFixture(t)
	w.createReady(policy(v1alpha1.RestartNever))
	w.Change(withAction(v1alpha1.ActionAsleep))
	w.reconcileUntilStable()
	w.backend.LoseMemory(w.uid(), "its file is damaged")
	w.Change(withAction(v1alpha1.ActionActive))
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	if events := w.events(); len(events) != 1 || events[0] != "Warning "+v1alpha1.ReasonMemoryLost {
		t.Errorf("events are %q", events)
	}
}
