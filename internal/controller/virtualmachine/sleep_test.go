package virtualmachine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
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

// A machine of QEMU sleeps while its host is off, and wakes without being asked.
func TestLongQEMUMachineSleepsWhileItsHostIsOff(t *testing.T) {
	w := newQEMUFixture(t)
	image := filepath.Join(t.TempDir(), "empty.raw")
	w.Do(os.WriteFile(image, make([]byte, 1<<20), 0o600))
	w.create(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Resource = v1alpha1.Resources{CPU: resource.MustParse("1"), Memory: resource.MustParse("64Mi")}
		vm.Spec.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: image, Format: "raw"}, Agent: ptr.To(false)}
	})
	w.until("it runs", runs(0))
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.OnHostShutdown = v1alpha1.HostShutdownSleep })
	w.reconcileUntilStable()
	w.Do(w.driver.Close())
	w.driver = nil
	w.Do(qemu.StopAll(t.Context(), w.stateDir, qemu.StopOptions{SleepTimeout: time.Minute}))
	if pids := w.pids(); len(pids) > 0 {
		t.Errorf("processes of a machine whose host is off: %v", pids)
	}
	w.Restart()
	w.until("it runs again", runs(0))
	if pids := w.pids(); len(pids) != 1 {
		t.Errorf("its processes are %v", pids)
	} else if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[0])); err != nil || !strings.Contains(string(line), "-incoming") {
		t.Errorf("it was not woken: %q, %v", line, err)
	}
	if events := w.events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
	// It sleeps and wakes on a schedule, too.
	w.Change(scheduled("", "@every 1h", ""))
	w.Pass(time.Hour)
	w.until("its schedule puts it to sleep", func(vm *v1alpha1.VirtualMachine) bool {
		return vm.Status.Server.State == v1alpha1.ServerAsleep && w.HasReason(v1alpha1.ReasonAsleep)
	})
	w.Change(woken(w.Clock.Now()))
	w.until("a person wakes it", runs(0))
	w.delete()
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
