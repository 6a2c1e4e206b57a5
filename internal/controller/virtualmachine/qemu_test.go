package virtualmachine

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// qemuFixture is a fixture with real machines. Its clock is fake: the test decides when a
// backoff is over.
type qemuFixture struct {
	*fixture
	stateDir string
	driver   *qemu.Driver
}

// newQEMUFixture skips the test where QEMU is not installed. CI has QEMU, and fails on skipped tests.
func newQEMUFixture(t *testing.T) *qemuFixture {
	t.Helper()
	if err := qemu.Missing(); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	w := &qemuFixture{fixture: newFixture(t), stateDir: t.TempDir()}
	t.Cleanup(func() {
		if w.driver != nil {
			w.Do(w.driver.Close())
		}
		w.Do(qemu.StopAll(context.WithoutCancel(t.Context()), w.stateDir, qemu.StopOptions{})) // leftovers of a failed test
	})
	w.Restart()
	return w
}

// Restart replaces the manager with a new one, whose only state is in the API and on disk.
func (w *qemuFixture) Restart() {
	w.Helper()
	w.fixture.Restart()
	if w.driver != nil {
		w.Do(w.driver.Close())
	}
	guest, err := env.Binary(filepath.Join("guest", "guest.json"))
	if err != nil {
		guest = "" // tests that need it have checked
	}
	w.driver, err = qemu.Open(qemu.Options{
		StateDir: w.stateDir, GuestDir: filepath.Dir(guest), ImageDirs: confine.Anywhere, AttachTimeout: harness.WaitTimeout, InstantStart: qemu.InstantNever, Log: testr.New(w.T),
	})
	w.Do(err)
	w.drivers = NewDrivers([]string{qemu.Name}, map[string]Opener{qemu.Name: func() (Driver, error) { return w.driver, nil }}, w.Clock)
	w.Reconciler.drivers = w.drivers
}

// until reconciles the VirtualMachine vm until check holds.
func (w *qemuFixture) until(what string, check func(*v1alpha1.VirtualMachine) bool) *v1alpha1.VirtualMachine {
	w.Helper()
	var vm *v1alpha1.VirtualMachine
	defer func() {
		if w.Failed() && vm != nil {
			w.Logf("%s: its status is %+v", what, vm.Status)
		}
	}()
	harness.Eventually(w, what, func() bool {
		w.ReconcileOnce()
		vm = w.Object()
		return check(vm)
	})
	return vm
}

// delete deletes the VirtualMachine vm, and checks that nothing is left.
func (w *qemuFixture) delete() {
	w.Helper()
	uid := w.uid()
	w.Delete()
	harness.Eventually(w, "it is gone", func() bool {
		if w.IsGone() {
			return true
		}
		w.ReconcileOnce()
		return w.IsGone()
	})
	if _, err := os.Stat(filepath.Join(w.stateDir, "machines", string(uid))); !os.IsNotExist(err) {
		w.Errorf("its folder is left: %v", err)
	}
}

// A new manager writes nothing for a machine that has not changed.
func TestNewManagerOfASteadyMachineWritesNothing(t *testing.T) {
	if _, err := env.Binary(filepath.Join("guest", "guest.json")); err != nil {
		t.Skip("SKIP: there is no default guest: run make guest")
	}
	w := newQEMUFixture(t)
	w.create(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Resource = v1alpha1.Resources{CPU: resource.MustParse("1"), Memory: resource.MustParse("128Mi")}
	})
	w.until("its guest has an address", func(vm *v1alpha1.VirtualMachine) bool {
		w.Pass(time.Second) // delayed status writes are written
		return w.HasReason(v1alpha1.ReasonGuestReady) && len(vm.Status.Server.Addresses) > 0
	})
	w.Pass(time.Minute)
	w.ReconcileOnce()
	for range 2 {
		w.Wrote()
		w.Restart()
		w.until("the new manager has figures of it", func(*v1alpha1.VirtualMachine) bool {
			w.Pass(time.Second)
			servers, err := w.driver.List(t.Context())
			return err == nil && len(servers) == 1 && servers[0].Usage != nil
		})
		if got := w.Wrote(); len(got) > 0 {
			t.Errorf("it has written %v: %+v", got, w.Object().Status)
		}
	}
	w.delete()
}
