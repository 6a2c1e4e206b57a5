package virtualmachine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func snapshotted(schedule string) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Snapshots = &v1alpha1.SnapshotSchedule{SnapshotSchedule: commonv1.SnapshotSchedule{Schedule: schedule, Keep: ptr.To[int32](2)}}
	}
}

// snapshots returns the VirtualMachineSnapshots, by name.
func (w *fixture) snapshots() []v1alpha1.VirtualMachineSnapshot {
	w.Helper()
	var list v1alpha1.VirtualMachineSnapshotList
	w.Do(w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
	return list.Items
}

// takeSnapshots does what the controller of VirtualMachineSnapshots does.
func (w *fixture) takeSnapshots() {
	w.Helper()
	for _, s := range w.snapshots() {
		if s.Status.TakenAt != nil {
			continue
		}
		s.Status.TakenAt, s.Status.Host = &metav1.Time{Time: w.Clock.Now()}, &v1alpha1.Host{Driver: fake.Name, ID: fake.Name, Name: fake.Name}
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSnapshotTaken, Message: "taken"})
		w.Do(w.Client.Status().Update(w.Context(), &s))
	}
}

// expectSnapshots compares the names of the VirtualMachineSnapshots with those of the scheduled times.
func (w *fixture) expectSnapshots(at ...time.Time) {
	w.Helper()
	var got, want []string
	for _, s := range w.snapshots() {
		got = append(got, s.Name)
	}
	for _, at := range at {
		want = append(want, "vm-scheduled-"+at.UTC().Format("20060102-150405"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("VirtualMachineSnapshots (-want +got):\n%s", diff)
	}
}

// expectSchedule fails the test unless the condition about the schedule has the reason.
func (w *fixture) expectSchedule(reason string) metav1.Condition {
	w.Helper()
	vm := w.Object()
	statuscheck.Verify(w, vm)
	is := ptr.Deref(meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionSnapshotsUpToDate), metav1.Condition{})
	want := metav1.ConditionFalse
	if reason == v1alpha1.ReasonNotDue || reason == v1alpha1.ReasonSnapshotTaken {
		want = metav1.ConditionTrue
	}
	if is.Reason != reason || is.Status != want {
		w.Errorf("the schedule is %s with reason %s, want %s: %s", is.Status, is.Reason, reason, is.Message)
	}
	return is
}

// A machine has snapshots whether it is on or not, the last ones are kept, and each time has one.
func TestSnapshotsOnASchedule(t *testing.T) {
	w := newFixture(t)
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour) // after the creation by the clock of the API server
	w.Clock.SetTime(day.Add(12 * time.Hour))
	at := func(days int, pause time.Duration) time.Time {
		due := day.Add(time.Duration(days)*24*time.Hour + 3*time.Hour)
		w.Clock.SetTime(due.Add(pause))
		w.reconcileUntilStable()
		return due
	}
	w.createReady()
	w.Change(snapshotted("0 3 * * *"))
	w.reconcileUntilStable()
	w.expectSchedule(v1alpha1.ReasonNotDue)
	if result := w.ReconcileOnce(); result.RequeueAfter <= 0 || result.RequeueAfter > 15*time.Hour {
		t.Errorf("it is requeued after %v, want 15 h at most", result.RequeueAfter)
	}
	at(1, -time.Minute)
	w.expectSnapshots()
	first := at(1, 0)
	w.expectSnapshots(first)
	w.expectSchedule(v1alpha1.ReasonSnapshotPending)
	s := w.snapshots()[0]
	if s.Spec.VirtualMachineName != "vm" || s.Annotations[v1alpha1.AnnotationScheduledAt] != timestamp(first) || len(s.OwnerReferences) > 0 {
		t.Errorf("the snapshot is %+v", s)
	}
	at(2, 0) // the one before is not taken
	w.expectSnapshots(first)
	w.takeSnapshots()
	w.reconcileUntilStable()
	w.expectSchedule(v1alpha1.ReasonSnapshotTaken)

	w.Restart() // no manager for three days: the last time counts
	w.Change(withAction(v1alpha1.ActionAsleep))
	second := at(5, time.Hour)
	w.expectSnapshots(first, second)
	w.takeSnapshots()
	w.Change(withAction(v1alpha1.ActionStopped))
	third := at(6, 0) // nothing is deleted before the third is taken
	w.expectSnapshots(first, second, third)
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonStopped)
	w.takeSnapshots()
	w.reconcileUntilStable()
	w.expectSnapshots(second, third)

	// One of which a machine is made is kept until then.
	fork := newVM(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Image = &v1alpha1.Image{Snapshot: w.snapshots()[0].Name} })
	fork.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: "fork"}
	w.Do(w.Client.Create(t.Context(), fork))
	w.Change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Snapshots.Memory, vm.Spec.Snapshots.AllowedNamespaces = true, []string{"team-b"}
	})
	fourth := at(7, 0)
	if all := w.snapshots(); !slices.Equal(all[2].Spec.AllowedNamespaces, []string{"team-b"}) || all[1].Spec.AllowedNamespaces != nil {
		t.Errorf("machines of the namespaces %v may be made of the new snapshot, and of %v of the one before", all[2].Spec.AllowedNamespaces, all[1].Spec.AllowedNamespaces)
	}
	if all := w.snapshots(); !all[2].Spec.Memory || all[1].Spec.Memory {
		t.Errorf("the schedule with memory made %+v after %+v", all[2].Spec, all[1].Spec)
	}
	w.takeSnapshots()
	w.reconcileUntilStable()
	w.expectSnapshots(second, third, fourth)
	w.Do(w.Client.Delete(t.Context(), fork))
	w.reconcileUntilStable()
	w.expectSnapshots(third, fourth)

	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Snapshots.Suspend = true })
	at(8, 0)
	w.expectSchedule(v1alpha1.ReasonSuspended)
	w.Change(func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.Snapshots.Suspend, vm.Spec.Snapshots.TimeZone = false, "Europe/Atlantis"
	})
	at(9, 0)
	if is := w.expectSchedule(v1alpha1.ReasonInvalidSchedule); !strings.Contains(is.Message, "spec.snapshots.timeZone") {
		t.Errorf("the message is %q", is.Message)
	}
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Snapshots = nil })
	at(10, 0)
	if vm := w.Object(); vm.Status.Snapshots != nil || meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionSnapshotsUpToDate) != nil {
		t.Errorf("the status is %+v", vm.Status)
	}
	w.Delete()
	w.reconcileUntilStable()
	w.expectSnapshots(third, fourth) // they outlive it
}

// Without disks there is nothing to take a snapshot of, and one of somebody else is left alone.
func TestScheduledSnapshotsThatAreNotMade(t *testing.T) {
	w := newFixture(t)
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
	w.Clock.SetTime(day.Add(12 * time.Hour))
	w.backend.Hold(backend.TaskCreate)
	w.create(snapshotted("@hourly"))
	w.reconcileUntilStable()
	w.expectSchedule(v1alpha1.ReasonMachineNotCreated)
	w.Pass(time.Hour)
	w.reconcileUntilStable()
	w.expectSnapshots()

	w.backend.Release(backend.TaskCreate)
	w.reconcileUntilStable()
	w.expectSchedule(v1alpha1.ReasonNotDue) // it is not made up for
	due := day.Add(14 * time.Hour)
	foreign := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "vm-scheduled-" + due.Format("20060102-150405")},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "vm"},
	}
	w.Do(w.Client.Create(t.Context(), foreign))
	w.Clock.SetTime(due)
	if result := w.ReconcileOnce(); result.RequeueAfter <= 0 || result.RequeueAfter > takenRetry {
		t.Errorf("it is tried again after %v", result.RequeueAfter)
	}
	w.expectSchedule(v1alpha1.ReasonErrResourceExists)
	w.Do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if len(foreign.Labels) > 0 {
		t.Errorf("the foreign one has labels: %v", foreign.Labels)
	}
	w.Do(w.Client.Delete(t.Context(), foreign))
	w.reconcileUntilStable()
	w.expectSnapshots(due)
	w.expectSchedule(v1alpha1.ReasonSnapshotPending)
}

// A mistake in the schedule is rejected at its field.
func TestSnapshotScheduleIsValidated(t *testing.T) {
	validate := NewValidator([]string{fake.Name}, map[string]Rule{fake.Name: func(*backend.Machine) error { return nil }})
	for schedule, want := range map[string]int{"0 3 * * *": 0, "61 * * * *": 1} {
		all := validate(newVM(snapshotted(schedule)))
		if len(all) != want || want == 1 && all[0].Field != "spec.snapshots.schedule" {
			t.Errorf("%s: the mistakes are %v", schedule, all)
		}
	}
}
