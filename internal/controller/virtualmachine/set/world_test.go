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
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func TestMain(m *testing.M) { env.Main(m) }

// world is a namespace of an API server, in which the test plays the controller of VirtualMachines, and a Reconciler that is called
// directly.
type world struct {
	*testing.T
	namespace string
	client    client.WithWatch
	clock     *clocktesting.FakePassiveClock
	recorder  *events.FakeRecorder
	writes    int
	*Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{
		T: t, namespace: env.Namespace(t), clock: clocktesting.NewFakePassiveClock(noon), recorder: events.NewFakeRecorder(1000),
		client: harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme), Indexes...),
	}
	w.restart()
	return w
}

// restart is a new process that remembers nothing.
func (w *world) restart() { w.useClient(w.client) }

// useClient is a restart with another client.
func (w *world) useClient(c client.WithWatch) {
	counted := harness.Observe(c, func(request harness.Request) error {
		if request.IsWrite() {
			w.writes++
		}
		return nil
	}, func(harness.Request) error { return nil })
	w.Reconciler = NewReconciler(counted, w.client, w.recorder, w.clock)
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create creates the VirtualMachineSet web.
func (w *world) create(change ...func(*v1alpha1.VirtualMachineSet)) {
	w.Helper()
	set := newSet(change...)
	set.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: set.Name}
	w.do(w.client.Create(w.Context(), set))
}

func (w *world) set() *v1alpha1.VirtualMachineSet {
	w.Helper()
	set := &v1alpha1.VirtualMachineSet{}
	w.do(w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, set))
	return set
}

// change changes the set.
func (w *world) change(change func(*v1alpha1.VirtualMachineSet)) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set := w.set()
		change(set)
		return w.client.Update(w.Context(), set)
	}))
}

// machines returns all machines, by name.
func (w *world) machines() []v1alpha1.VirtualMachine {
	w.Helper()
	var list v1alpha1.VirtualMachineList
	w.do(w.client.List(w.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

// machine returns the machine of that name.
func (w *world) machine(name string) *v1alpha1.VirtualMachine {
	w.Helper()
	machine := &v1alpha1.VirtualMachine{}
	w.do(w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, machine))
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
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		machine := w.machine(name)
		change(machine)
		for i := range machine.Status.Conditions {
			machine.Status.Conditions[i].LastTransitionTime = metav1.NewTime(noon)
		}
		return w.client.Status().Update(w.Context(), machine)
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

// reconcile reconciles the set once.
func (w *world) reconcile() reconcile.Result {
	w.Helper()
	result, err := w.Reconcile(w.Context(), w.set())
	if err != nil {
		w.Fatalf("Reconcile: %v", err)
	}
	return result
}

// settle reconciles the set until there is nothing more to do.
func (w *world) settle() {
	w.Helper()
	for range 30 {
		before := w.writes
		result := w.reconcile()
		if result.RequeueAfter == 0 && w.writes == before {
			return
		}
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	w.Fatal("Still busy after 30 reconciles")
}

// rollOut reconciles, and boots machines, until the set is ready.
func (w *world) rollOut() {
	w.Helper()
	for range 20 {
		w.settle()
		if meta.IsStatusConditionTrue(w.set().Status.Conditions, v1alpha1.ConditionReady) {
			return
		}
		w.boot()
	}
	w.Fatalf("the set does not become ready: %v", w.set().Status.Conditions)
}

// expect checks Ready and the numbers of the status: replicas, ready, updated.
func (w *world) expect(reason, numbers, says string) {
	w.Helper()
	set := w.set()
	statuscheck.Verify(w, set)
	is := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionReady)
	got := fmt.Sprintf("%d %d %d", set.Status.Replicas, set.Status.ReadyReplicas, set.Status.UpdatedReplicas)
	if is.Reason != reason || !strings.Contains(is.Message, says) || got != numbers {
		w.Errorf("Ready is %s: %s; machines %s. Want %s with %q; machines %s", is.Reason, is.Message, got, reason, says, numbers)
	}
}

// events returns the events since the last call that have a reason.
func (w *world) events(reason string) []string {
	return slices.DeleteFunc(harness.Events(w.recorder), func(event string) bool { return !strings.Contains(event, " "+reason+" ") })
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
