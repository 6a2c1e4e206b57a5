package virtualmachine

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// These are the defects of the controller whose manifests this one takes over.

func TestDefectFinalizerOnlyAfterTheServerExisted(t *testing.T) {
	w := newFixture(t)
	w.create()
	w.backend.Fail("Create", errors.New("killed"))
	w.ReconcileOnce()
	if got := w.Object().Finalizers; !slices.Equal(got, []string{"fake.cloudnative.tw/server"}) {
		t.Errorf("the finalizers at the call to create are %v", got)
	}
	if got := w.Wrote(); len(got) == 0 || got[0] != (harness.Request{Verb: "patch"}) {
		t.Errorf("the first write is not that of the finalizer: %v", got)
	}
}

func TestDefectStuckInCreatingAfterACrash(t *testing.T) {
	w := newFixture(t)
	w.create()
	w.backend.Hold(backend.TaskCreate)
	w.reconcileUntilStable()
	w.backend.Lose(w.uid()) // the driver was killed with the manager, in the middle
	w.backend.Release(backend.TaskCreate)
	w.Restart()
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
}

func TestDefectDeletionIgnoredInCreatingAndFailed(t *testing.T) {
	t.Run("Creating", func(t *testing.T) {
		w := newFixture(t)
		w.backend.Hold(backend.TaskCreate)
		w.create()
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseCreating, isFalse, v1alpha1.ReasonCreating)
		w.Delete()
		w.reconcileUntilStable()
		if !w.IsGone() || len(w.backend.UIDs()) > 0 {
			t.Error("it is not deleted")
		}
	})
	t.Run("Failed", func(t *testing.T) {
		w := newFixture(t)
		w.backend.Fail("Create", errors.New("broken"))
		w.create()
		w.reconcileUntilStable()
		w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonCreateFailed)
		w.Delete()
		w.reconcileUntilStable()
		if !w.IsGone() || len(w.backend.UIDs()) > 0 {
			t.Error("it is not deleted")
		}
	})
}

func TestDefectNamesClashAcrossNamespacesAndBySubstring(t *testing.T) {
	w := newFixture(t)
	other := newFixtureBeside(w)
	w.createReady()
	other.createReady()
	longer := newVM()
	longer.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: "vm10"}
	w.Do(w.Client.Create(t.Context(), longer))
	for range 2 { // it is claimed, and created
		w.Do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(longer), longer))
		if _, err := w.Reconcile(t.Context(), longer); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(w.backend.UIDs()); got != 3 {
		t.Fatalf("three machines have %d servers", got)
	}
	kept := []types.UID{other.uid(), longer.UID}
	slices.Sort(kept)
	w.Delete()
	w.reconcileUntilStable()
	if got := w.backend.UIDs(); !slices.Equal(got, kept) {
		t.Errorf("after the deletion of one, there are %v, want %v", got, kept)
	}
}

func TestDefectCPULimitWrongByABillion(t *testing.T) {
	vm := newVM(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.CPU = resource.MustParse("1500m") })
	machine := newMachine(vm, backend.Identity{})
	if machine.MilliCPU != 1500 {
		t.Errorf("1500m are %d thousandths of a processor", machine.MilliCPU)
	}
}

func TestDefectStoppedServersInvisible(t *testing.T) {
	w := newFixture(t)
	w.createReady(policy(v1alpha1.RestartNever))
	w.backend.Crash(w.uid(), backend.CauseGuestShutdown, "")
	w.Restart()
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestStopped)
	w.expectCalls()
	if got := w.Object().Status.Server.State; got != v1alpha1.ServerStopped {
		t.Errorf("the state is %q", got)
	}
}

func TestDefectStatusWrittenWithAFullUpdate(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.SetUsage(w.uid(), 90, 90)
	stale := w.Object()
	w.Change(withAction(v1alpha1.ActionPaused))
	if result, err := w.Reconcile(t.Context(), stale); err != nil || result.RequeueAfter == 0 {
		t.Errorf("Reconcile returns %v, %v", result, err)
	}
	if got := w.Object().Spec.Action; got != v1alpha1.ActionPaused {
		t.Errorf("a write of the status has set spec.action to %s", got)
	}
	for _, request := range w.Wrote() {
		if request.Verb == "update" && request.Subresource != "status" {
			t.Errorf("the object was written as a whole: %v", request)
		}
	}
}

func TestDefectDeletedKeyRequeuedForEver(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.Delete()
	w.reconcileUntilStable()
	wrapped := reconcile.AsReconciler(w.Client, w.Reconciler)
	key := client.ObjectKey{Namespace: w.Namespace, Name: "vm"}
	result, err := wrapped.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != 0 {
		t.Errorf("the key of an object that is gone: %v, %v", result, err)
	}
}

func TestDefectDeathWhileActiveNeitherRestartedNorReported(t *testing.T) {
	w := newFixture(t)
	counted := w.run()
	w.create()
	w.Eventually("it runs", func() bool { return w.HasReason(v1alpha1.ReasonGuestBooting) })
	w.backend.Boot(w.uid())
	w.Eventually("it is ready", func() bool { return w.HasReason(v1alpha1.ReasonGuestReady) })
	counted.Take()
	w.backend.Crash(w.uid(), backend.CauseHost, "signal 9")
	w.Eventually("it is started again", func() bool {
		return w.Object().Status.Restarts == 1 && w.HasReason(v1alpha1.ReasonGuestBooting)
	})
	if got := counted.Take()[http.MethodPut]; got > 3 {
		t.Errorf("%d writes of the status for one restart", got)
	}
}

func TestDefectNoDeadlines(t *testing.T) {
	w := newFixture(t)
	w.create()
	driver := &deadlines{Driver: w.backend}
	w.drivers = NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) { return driver, nil }}, w.Clock)
	w.Reconciler = NewReconciler(kube.NewBase(kind, w.Client, w.Client, w.Recorder, w.Clock), w.drivers)
	w.reconcileUntilStable()
	w.Delete()
	w.reconcileUntilStable()
	if driver.with == 0 || driver.without > 0 {
		t.Errorf("%d calls of the driver had a deadline, %d had none", driver.with, driver.without)
	}
}

// deadlines counts calls with and without a deadline.
type deadlines struct {
	*fake.Driver
	with, without int
}

func (d *deadlines) look(ctx context.Context) {
	if _, found := ctx.Deadline(); found {
		d.with++
	} else {
		d.without++
	}
}

func (d *deadlines) Observe(ctx context.Context, id backend.Identity) (backend.Server, error) {
	d.look(ctx)
	return d.Driver.Observe(ctx, id)
}

func (d *deadlines) Create(ctx context.Context, machine backend.Machine) error {
	d.look(ctx)
	return d.Driver.Create(ctx, machine)
}

func (d *deadlines) Start(ctx context.Context, machine backend.Machine) error {
	d.look(ctx)
	return d.Driver.Start(ctx, machine)
}

func (d *deadlines) Stop(ctx context.Context, id backend.Identity, grace time.Duration) error {
	d.look(ctx)
	return d.Driver.Stop(ctx, id, grace)
}

func (d *deadlines) Delete(ctx context.Context, id backend.Identity, options backend.DeleteOptions) error {
	d.look(ctx)
	return d.Driver.Delete(ctx, id, options)
}
