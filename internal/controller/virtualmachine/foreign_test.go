package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// gold creates a VirtualMachineSnapshot that is taken, in another namespace.
func (w *fixture) gold(namespace string, allowed ...string) *v1alpha1.VirtualMachineSnapshot {
	w.Helper()
	s := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gold"},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web", AllowedNamespaces: allowed},
	}
	w.Do(w.Client.Create(w.Context(), s))
	s.Status.TakenAt, s.Status.Host = &metav1.Time{Time: w.Clock.Now()}, &v1alpha1.Host{Driver: fake.Name, ID: fake.Name, Name: fake.Name}
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSnapshotTaken, Message: "taken"})
	w.Do(w.Client.Status().Update(w.Context(), s))
	return s
}

func madeOf(namespace, snapshot string) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Image = &v1alpha1.Image{Snapshot: snapshot, SnapshotNamespace: namespace}
	}
}

// A machine is made of a snapshot of another namespace only while that allows it. What is refused tells nothing about the snapshot.
func TestMachineOfASnapshotOfAnotherNamespace(t *testing.T) {
	w := newFixture(t)
	shared := env.Namespace(t)
	w.create(madeOf(shared, "gold"))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonImageMissing)
	missing := w.Object().Status.Reason
	if !strings.Contains(missing, "add "+w.Namespace+" to its spec.allowedNamespaces") {
		t.Errorf("the reason is %q", missing)
	}
	gold := w.gold(shared, "other", shared)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, isFalse, v1alpha1.ReasonImageMissing)
	if got := w.Object().Status.Reason; got != missing {
		t.Errorf("the reason tells that there is a snapshot: %q, was %q", got, missing)
	}
	w.expectCalls()

	wakes := func() []reconcile.Request {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		watchSnapshots(w.Client).Update(t.Context(), event.UpdateEvent{ObjectOld: gold, ObjectNew: gold}, queue)
		var all []reconcile.Request
		for queue.Len() > 0 {
			request, _ := queue.Get()
			all = append(all, request)
		}
		return all
	}
	if got := wakes(); len(got) > 0 {
		t.Errorf("the snapshot wakes %v, which may not be made of it", got)
	}
	gold.Spec.AllowedNamespaces = append(gold.Spec.AllowedNamespaces, w.Namespace)
	w.Do(w.Client.Update(t.Context(), gold))
	if got := wakes(); len(got) != 1 || got[0].Namespace != w.Namespace {
		t.Errorf("the snapshot wakes %v", got)
	}
	w.reconcileUntilStable()
	w.expectCalls("Create", "Start")
	if got := wakes(); len(got) > 0 {
		t.Errorf("the snapshot wakes %v, which is created", got)
	}

	// It is independent of the snapshot and of the permission.
	w.Do(w.Client.Delete(t.Context(), gold))
	w.Change(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
}

// A schedule keeps a snapshot that a machine of an allowed namespace waits for.
func TestScheduleKeepsSnapshotsForOtherNamespaces(t *testing.T) {
	w := newFixture(t)
	other := env.Namespace(t)
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
	w.Clock.SetTime(day.Add(12*time.Hour + time.Minute))
	w.createReady()
	w.Change(snapshotted("@hourly"))
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Snapshots.Keep = ptr.To[int32](1) })
	w.reconcileUntilStable()
	next := func() {
		w.Pass(time.Hour)
		w.reconcileUntilStable()
		w.takeSnapshots()
		w.reconcileUntilStable()
	}
	next()
	first := w.snapshots()[0]
	first.Spec.AllowedNamespaces = []string{other}
	w.Do(w.Client.Update(t.Context(), &first))
	fork := newVM(madeOf(w.Namespace, first.Name))
	fork.ObjectMeta = metav1.ObjectMeta{Namespace: other, Name: "fork"}
	w.Do(w.Client.Create(t.Context(), fork))
	next()
	w.expectSnapshots(day.Add(13*time.Hour), day.Add(14*time.Hour))
	w.Do(client.IgnoreNotFound(w.Client.Delete(t.Context(), fork)))
	w.reconcileUntilStable()
	w.expectSnapshots(day.Add(14 * time.Hour))
}
