package virtualmachine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// fixture is a VirtualMachine named vm, with an in-memory backend.
type fixture struct {
	*stories.World[*v1alpha1.VirtualMachine]
	*Reconciler
	backend *fake.Driver
	drivers *Drivers
}

// newFixture returns a new fixture; tests run in parallel. Guests respond only when the test
// calls Boot.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return startFixture(t, stories.Server)
}

func startFixture(t *testing.T, api stories.API) *fixture {
	t.Helper()
	w := emptyFixture(t, api)
	w.backend = fake.New(fake.Options{Clock: w.Clock, BootTime: -1})
	w.Restart()
	return w
}

func emptyFixture(t *testing.T, api stories.API) *fixture {
	t.Helper()
	w := &fixture{World: stories.New[*v1alpha1.VirtualMachine](t, api, stories.Options{
		Name: "vm", AddToScheme: v1alpha1.AddToScheme,
		// The API server has this one itself.
		Indexes: []kube.Index{{Field: "metadata.name", Keys: func(o client.Object) []string { return []string{o.GetName()} }}},
		Cached:  []client.ObjectList{&v1alpha1.VirtualMachineList{}},
		Now:     time.Now(), // the API server sets deletion timestamps with this clock, too
	})}
	w.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.VirtualMachine] {
		w.drivers = NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) { return w.backend, nil }}, w.Clock)
		w.Reconciler = NewReconciler(kube.NewBase(kind, cached, live, w.Recorder, w.Clock), w.drivers)
		return w // tests replace the Reconciler
	}
	return w
}

// create creates the VirtualMachine vm.
func (w *fixture) create(changes ...change) {
	w.Helper()
	vm := newVM(changes...)
	vm.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: vm.Name}
	w.Do(w.Client.Create(w.Context(), vm))
}

// createReady creates the VirtualMachine vm and boots its guest.
func (w *fixture) createReady(changes ...change) {
	w.Helper()
	w.create(changes...)
	w.reconcileUntilStable()
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, metav1.ConditionTrue, v1alpha1.ReasonGuestReady)
	w.events()
	w.Wrote()
	w.backend.Calls()
}

func (w *fixture) uid() types.UID { return w.Object().UID }

// reconcileUntilStable reconciles the VirtualMachine vm, advancing the clock by short delays of
// the status, until a reconcile does nothing.
func (w *fixture) reconcileUntilStable() {
	w.Helper()
	for calls := -1; calls != w.backend.CallCount(); {
		calls = w.backend.CallCount()
		w.Settle()
	}
}

// events returns the reasons of the events since the last call.
func (w *fixture) events() []string {
	var reasons []string
	for _, event := range w.Events() {
		reasons = append(reasons, strings.Join(strings.Fields(event)[:2], " "))
	}
	return reasons
}

// expect fails the test unless the VirtualMachine vm has this phase, and Ready this status and
// reason.
func (w *fixture) expect(phase v1alpha1.Phase, status metav1.ConditionStatus, reason string) {
	w.Helper()
	vm := w.Object()
	statuscheck.Verify(w, vm)
	type summary struct {
		Phase  v1alpha1.Phase
		Status metav1.ConditionStatus
		Reason string
	}
	got := summary{Phase: vm.Status.Phase}
	if ready := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		got.Status, got.Reason = ready.Status, ready.Reason
	}
	if diff := cmp.Diff(summary{phase, status, reason}, got); diff != "" {
		w.Errorf("status (-want +got):\n%s%s", diff, vm.Status.Reason)
	}
}

// expectCalls fails the test unless these were the calls of the driver since the last time.
func (w *fixture) expectCalls(want ...string) {
	w.Helper()
	var got []string
	for _, call := range w.backend.Calls() {
		got = append(got, strings.TrimSuffix(call, " vm"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
}

// errLost is the error of a request whose response is lost.
var errLost = errors.New("connection reset")
