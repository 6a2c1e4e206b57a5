package set

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// world is a VirtualMachineSet named web. The test plays the controller of VirtualMachines.
type world struct {
	*stories.World[*v1alpha1.VirtualMachineSet]
	*Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return startWorld(t, stories.Server)
}

func startWorld(t *testing.T, api stories.API) *world {
	t.Helper()
	w := &world{World: stories.New[*v1alpha1.VirtualMachineSet](t, api, stories.Options{
		Name: "web", AddToScheme: v1alpha1.AddToScheme, Indexes: Indexes, Now: noon,
		Cached: []client.ObjectList{&v1alpha1.VirtualMachineList{}, &v1alpha1.VirtualMachineSetList{}},
	})}
	w.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.VirtualMachineSet] {
		w.Reconciler = &Reconciler{kube.NewBase(kind, cached, live, w.Recorder, w.Clock)}
		return w.Reconciler
	}
	w.Restart()
	return w
}

// Step boots the machines after each reconcile.
func (w *world) Step() (reconcile.Result, error) {
	w.Helper()
	result, err := w.World.Step()
	w.boot()
	return result, err
}

// create creates the VirtualMachineSet web.
func (w *world) create(change ...func(*v1alpha1.VirtualMachineSet)) {
	w.Helper()
	set := newSet(change...)
	set.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: set.Name}
	w.Do(w.Client.Create(w.Context(), set))
}

// machines returns all machines, by name.
func (w *world) machines() []v1alpha1.VirtualMachine {
	w.Helper()
	var list v1alpha1.VirtualMachineList
	w.Do(w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
	return list.Items
}

// machine returns the machine of that name.
func (w *world) machine(name string) *v1alpha1.VirtualMachine {
	w.Helper()
	machine := &v1alpha1.VirtualMachine{}
	w.Do(w.Client.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, machine))
	return machine
}

// names returns the names of all machines.
func (w *world) names() string {
	w.Helper()
	var names []string
	for _, machine := range w.machines() {
		names = append(names, machine.Name)
	}
	return strings.Join(names, " ")
}

// report plays the controller of VirtualMachines: it writes the status of a machine.
func (w *world) report(name string, change func(*v1alpha1.VirtualMachine)) {
	w.Helper()
	w.Do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		machine := w.machine(name)
		change(machine)
		for i := range machine.Status.Conditions {
			machine.Status.Conditions[i].LastTransitionTime = metav1.NewTime(noon)
		}
		return w.Client.Status().Update(w.Context(), machine)
	}))
}

// boot makes all machines ready that are not.
func (w *world) boot() {
	w.Helper()
	for _, machine := range w.machines() {
		if !isReady(&machine) {
			w.report(machine.Name, ready)
		}
	}
}

// rollOut reconciles, and boots machines, until the set is ready.
func (w *world) rollOut() {
	w.Helper()
	for range 20 {
		w.Settle()
		if meta.IsStatusConditionTrue(w.Object().Status.Conditions, v1alpha1.ConditionReady) {
			return
		}
		w.boot()
	}
	w.Fatalf("the set does not become ready: %v", w.Object().Status.Conditions)
}

// expect checks Ready and the numbers of the status: replicas, ready, updated.
func (w *world) expect(reason, numbers, says string) {
	w.Helper()
	set := w.Object()
	statuscheck.Verify(w, set)
	is := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionReady)
	got := fmt.Sprintf("%d %d %d", set.Status.Replicas, set.Status.ReadyReplicas, set.Status.UpdatedReplicas)
	if is.Reason != reason || !strings.Contains(is.Message, says) || got != numbers {
		w.Errorf("Ready is %s: %s; machines %s. Want %s with %q; machines %s", is.Reason, is.Message, got, reason, says, numbers)
	}
}

// eventsOf returns the events since the last call that have a reason.
func (w *world) eventsOf(reason string) []string {
	return slices.DeleteFunc(w.Events(), func(event string) bool { return !strings.Contains(event, " "+reason+" ") })
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// newSet returns the set web of three machines.
func newSet(change ...func(*v1alpha1.VirtualMachineSet)) *v1alpha1.VirtualMachineSet {
	set := &v1alpha1.VirtualMachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team", UID: "set-1", Generation: 2},
		Spec:       v1alpha1.VirtualMachineSetSpec{Replicas: ptr.To[int32](3)},
	}
	set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	for _, change := range change {
		change(set)
	}
	return set
}

// ready is what a machine reports whose guest has booted with the present spec.
func ready(machine *v1alpha1.VirtualMachine) {
	is := func(condition string, status metav1.ConditionStatus, reason string) {
		meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: reason, Message: "a"})
	}
	machine.Status.ObservedGeneration, machine.Status.Phase, machine.Status.Reason = machine.Generation, v1alpha1.PhaseActive, ""
	is(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonGuestReady)
	is(v1alpha1.ConditionRestartRequired, metav1.ConditionFalse, v1alpha1.ReasonUpToDate)
}

// restartRequired is what a machine reports that has a change which requires a restart.
func restartRequired(machine *v1alpha1.VirtualMachine) {
	ready(machine)
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionRestartRequired, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFieldsWait, Message: "a",
	})
}

// notReady is what a machine reports that is not ready for a reason.
func notReady(reason string) func(*v1alpha1.VirtualMachine) {
	return func(machine *v1alpha1.VirtualMachine) {
		ready(machine)
		meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "It is " + reason,
		})
		machine.Status.Reason = "It is " + reason
	}
}

// failed is what a machine reports whose driver cannot create it.
func failed(machine *v1alpha1.VirtualMachine) {
	notReady(v1alpha1.ReasonCreateFailed)(machine)
	machine.Status.Phase = v1alpha1.PhaseFailed
}
