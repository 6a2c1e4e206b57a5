package virtualmachine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/requests"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// The times of requests.
const (
	once   = "2026-11-25T18:00:01Z"
	twice  = "2026-11-25T18:00:02Z"
	thrice = "2026-11-25T18:00:03Z"
)

// timeOf returns the time of a text.
func timeOf(text string) metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return metav1.NewTime(at)
}

// restoring sets spec.restore.
func restoring(snapshot, requested string, keep bool) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Restore = &commonv1.Restore{Snapshot: snapshot, RequestedAt: timeOf(requested), KeepCurrent: ptr.To(keep)}
	}
}

// snapshot creates a VirtualMachineSnapshot that is taken, later than the VirtualMachine was created.
func (w *fixture) snapshot(name, of string) {
	w.Helper()
	w.Pass(time.Minute)
	w.Do(w.Client.Create(w.Context(), &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: of},
	}))
	w.takeSnapshots()
}

// previous returns the VirtualMachineSnapshots of disks before a restore.
func (w *fixture) previous() []v1alpha1.VirtualMachineSnapshot {
	w.Helper()
	return slices.DeleteFunc(w.snapshots(), func(s v1alpha1.VirtualMachineSnapshot) bool {
		return s.Labels[v1alpha1.LabelRestoreOf] != string(w.uid())
	})
}

// expectRestored fails the test unless the condition about the restore has the reason.
func (w *fixture) expectRestored(reason, says string) {
	w.Helper()
	vm := w.Object()
	statuscheck.Verify(w, vm)
	is := ptr.Deref(meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionRestored), metav1.Condition{})
	want := metav1.ConditionFalse
	if reason == v1alpha1.ReasonRestored {
		want = metav1.ConditionTrue
	}
	if is.Reason != reason || is.Status != want || !strings.Contains(is.Message, says) {
		w.Errorf("Restored is %s with reason %s, want %s: %s", is.Status, is.Reason, reason, is.Message)
	}
}

// The present disks are kept, the machine is stopped, restored and started, once for each request.
func TestRestore(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.Change(restoring("a", once, true))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonSnapshotNotAvailable, "there is no VirtualMachineSnapshot")
	w.snapshot("a", "vm")
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonSnapshotPending, "keepCurrent")
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectCalls()
	if n := len(w.previous()); n != 1 {
		t.Fatalf("%d snapshots of the present disks", n)
	}
	w.events()
	w.takeSnapshots()
	w.backend.Hold(backend.TaskRestore)
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestoring, "VirtualMachineSnapshot a")
	w.expect(v1alpha1.PhaseActive, isFalse, v1alpha1.ReasonRestoring)
	w.expectCalls("Stop", "RestoreServer")
	w.Pass(time.Hour) // it takes long
	w.Restart()
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestoring, "")
	w.backend.Release(backend.TaskRestore)
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, w.previous()[0].Name)
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	done := w.Object().Status.Restore
	if done == nil || done.Result != commonv1.RestoreSucceeded || requests.Token(&done.RequestedAt) != once || done.Previous != w.previous()[0].Name || done.CompletedAt == nil {
		t.Errorf("the result is %+v", done)
	}
	if events := w.events(); !slices.Equal(events, []string{"Normal " + v1alpha1.ReasonRestored}) {
		t.Errorf("events: %v", events)
	}
	w.expectCalls("Start")
	w.Restart() // the next manager does not restore it again, nor does a request without a new text
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Restore = nil })
	w.reconcileUntilStable()
	if meta.FindStatusCondition(w.Object().Status.Conditions, v1alpha1.ConditionRestored) != nil {
		t.Error("there is a condition without spec.restore")
	}
	w.Change(restoring("a", once, true))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, "")
	w.expectCalls()
}

// A machine that is restored from a snapshot with memory wakes, unless it should be off.
func TestRestoreOfMemory(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.snapshot("a", "vm")
	taken := w.snapshots()[0]
	vm := w.Object()
	w.Do(w.backend.TakeSnapshot(t.Context(), backend.SnapshotIdentity{UID: taken.UID, Name: taken.Name},
		backend.Source{Server: backend.Identity{UID: vm.UID, Name: vm.Name}, Memory: true}))
	taken.Status.MemorySize = resource.NewQuantity(1<<20, resource.BinarySI)
	w.Do(w.Client.Status().Update(t.Context(), &taken))
	w.Change(restoring("a", once, true))
	w.reconcileUntilStable()
	if previous := w.previous(); len(previous) != 1 || !previous[0].Spec.Memory {
		t.Errorf("the present state is kept in %+v, want memory, too", previous)
	}
	w.takeSnapshots()
	w.backend.Hold(backend.TaskStart)
	w.reconcileUntilStable()
	if server, err := w.backend.Observe(t.Context(), backend.Identity{UID: vm.UID}); err != nil || server.State != backend.StateAsleep || server.Task != backend.TaskStart {
		t.Errorf("after the restore the server is %+v, %v", server, err)
	}
	w.backend.Release(backend.TaskStart)
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	w.expectRestored(v1alpha1.ReasonRestored, "")
	w.expectCalls("Stop", "RestoreServer", "Start")

	w.Change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Action = v1alpha1.ActionStopped
		restoring("a", twice, true)(vm)
	})
	w.reconcileUntilStable()
	if previous := w.previous(); len(previous) != 2 || previous[0].Spec.Memory == previous[1].Spec.Memory {
		t.Errorf("the state of a machine that should be off is kept in %+v, want no memory", previous)
	}
	w.takeSnapshots()
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, "")
	w.expectCalls("Stop", "RestoreServer")
	if server, err := w.backend.Observe(t.Context(), backend.Identity{UID: vm.UID}); err != nil || server.State != backend.StateStopped {
		t.Errorf("the server that should be off is %+v, %v", server, err)
	}
}

// A failed restore is reported and not repeated; the machine runs as before.
func TestRestoreThatFails(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.snapshot("a", "vm")
	w.backend.FailRestore(errors.New("no space left"))
	w.Change(restoring("a", once, false))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestoreFailed, "no space left")
	w.Pass(time.Hour)
	w.reconcileUntilStable()
	w.expectCalls("Stop", "RestoreServer", "Start")
	if done := w.Object().Status.Restore; done == nil || done.Result != commonv1.RestoreFailed || done.Message != "no space left" || len(w.previous()) > 0 {
		t.Errorf("the result is %+v, with %d snapshots", done, len(w.previous()))
	}
	if events := w.events(); !slices.Contains(events, "Warning "+v1alpha1.ReasonRestoreFailed) {
		t.Errorf("events: %v", events)
	}
	w.Change(restoring("a", twice, false))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, "")
	w.expectCalls("Stop", "RestoreServer", "Start")
}

// What a restore waits for, and what it refuses. A machine that is asleep or off is restored, and started only if it should run.
func TestRestoreThatWaits(t *testing.T) {
	w := newFixture(t)
	w.backend.Hold(backend.TaskCreate)
	w.create(restoring("foreign", once, true))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonMachineNotCreated, "")
	w.backend.Release(backend.TaskCreate)
	w.snapshot("foreign", "other")
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonSnapshotNotAvailable, "is of another VirtualMachine: create a new VirtualMachine of it with spec.image.snapshot")
	w.snapshot("elsewhere", "vm")
	s := &v1alpha1.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "elsewhere"}}
	w.Do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s))
	s.Status.Host.ID = "another"
	w.Do(w.Client.Status().Update(t.Context(), s))
	w.Change(restoring("elsewhere", twice, true))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonSnapshotNotAvailable, "the snapshot elsewhere is on the host")
	w.expectCalls("Create", "Start")

	w.Change(withAction(v1alpha1.ActionAsleep))
	w.snapshot("a", "vm")
	w.Change(restoring("a", thrice, true))
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonSnapshotPending, "")
	first := w.previous()[0].UID
	w.takeSnapshots()
	w.Pass(time.Hour) // no manager ran, and the disks may have changed since
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonSnapshotPending, "")
	if all := w.previous(); len(all) != 1 || all[0].UID == first {
		t.Errorf("snapshots: %+v", all)
	}
	w.expectCalls("Sleep")
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Restore.KeepCurrent = ptr.To(false) })
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, "")
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.expectCalls("RestoreServer")
	if n := len(w.previous()); n > 0 {
		t.Errorf("%d snapshots that nobody wants", n)
	}
	w.Change(withAction(v1alpha1.ActionStopped))
	w.Change(restoring("a", "2026-11-25T18:00:04Z", true))
	w.reconcileUntilStable()
	w.takeSnapshots()
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, w.previous()[0].Name)
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.expectCalls("RestoreServer")
}

// A restore that was begun goes on, however long it waits, and the only copy of the disks before it is kept.
func TestRestoreThatWaitsForLong(t *testing.T) {
	w := newFixture(t)
	w.create(withAction(v1alpha1.ActionStopped))
	w.snapshot("a", "vm")
	w.Change(restoring("a", once, true))
	w.reconcileUntilStable()
	w.takeSnapshots()
	w.backend.DelayRestore(w.uid(), once) // a driver was asked, and then the manager was away
	kept := w.previous()[0].UID
	w.Pass(time.Hour)
	w.reconcileUntilStable()
	w.expectRestored(v1alpha1.ReasonRestored, w.previous()[0].Name)
	if all := w.previous(); len(all) != 1 || all[0].UID != kept {
		t.Errorf("snapshots: %+v", all)
	}
}

// A restore that waits is withdrawn when it is not wanted any more, also if the machine stays off.
func TestRestoreIsWithdrawn(t *testing.T) {
	w := newFixture(t)
	w.create(withAction(v1alpha1.ActionStopped))
	w.reconcileUntilStable()
	w.backend.DelayRestore(w.uid(), once)
	w.reconcileUntilStable()
	w.expectCalls("Create", "RestoreServer")
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.reconcileUntilStable()
	w.expectCalls()
}

// A schedule keeps the snapshot that a restore waits for.
func TestRestoreNeedsItsSnapshot(t *testing.T) {
	vm := newVM(restoring("a", once, true))
	in := func(namespace, name string) *v1alpha1.VirtualMachineSnapshot {
		return &v1alpha1.VirtualMachineSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.VirtualMachineSnapshotSpec{AllowedNamespaces: []string{vm.Namespace}},
		}
	}
	if !needsSnapshot(vm, in(vm.Namespace, "a")) || needsSnapshot(vm, in(vm.Namespace, "b")) || needsSnapshot(vm, in("other", "a")) {
		t.Error("the restore does not need its snapshot, or another one")
	}
	vm.Status.Restore = &commonv1.RestoreStatus{RequestedAt: timeOf(once)}
	if needsSnapshot(vm, in(vm.Namespace, "a")) {
		t.Error("a restore that is done needs its snapshot")
	}
}

// A driver without snapshots refuses a restore.
func TestRestoreWithoutSnapshots(t *testing.T) {
	observed := observation{name: "docker", driver: struct{ Driver }{fake.New(fake.Options{})}, server: &backend.Server{State: backend.StateRunning}}
	is := restoredCondition(newVM(restoring("a", once, true)), &observed, plan{}, nil, &v1alpha1.VirtualMachineStatus{})
	if is.Reason != v1alpha1.ReasonInvalidSpec || is.Status != metav1.ConditionFalse || !strings.Contains(is.Message, "the driver docker has no snapshots") {
		t.Errorf("the condition is %+v", is)
	}
}
