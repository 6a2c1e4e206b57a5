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
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func TestMain(m *testing.M) { env.Main(m) }

// fixture has a namespace in an API server, an in-memory backend, and a Reconciler that the
// test calls directly.
type fixture struct {
	*testing.T
	namespace string
	client    client.WithWatch
	// api reads from the API server, not from a cache.
	api      client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	backend  *fake.Driver
	drivers  *Drivers
	// writes are the write requests since the last call of wrote.
	writes []harness.Request
	*Reconciler
}

// newFixture returns a new fixture; tests run in parallel. Guests respond only when the test
// calls Boot.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	scheme := harness.Scheme(t, v1alpha1.AddToScheme)
	api, err := client.NewWithWatch(env.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("Build a client: %v", err)
	}
	w := &fixture{
		T:         t,
		namespace: env.Namespace(t),
		client:    harness.Client(t, env.Config(t), scheme),
		api:       api,
		// The API server sets deletion timestamps with this clock, too.
		clock:    clocktesting.NewFakeClock(time.Now()),
		recorder: events.NewFakeRecorder(100),
	}
	w.backend = fake.New(fake.Options{Clock: w.clock, BootTime: -1})
	w.restart()
	return w
}

// restart replaces the manager with a new one without state. The backend keeps running.
func (w *fixture) restart() { w.useClient(w.client) }

// useClient restarts the manager with another client.
func (w *fixture) useClient(c client.WithWatch) {
	counted := harness.Observe(c, func(request harness.Request) error {
		if request.IsWrite() {
			w.writes = append(w.writes, request)
		}
		return nil
	}, func(harness.Request) error { return nil })
	w.drivers = NewDrivers([]string{fake.Name}, map[string]Opener{fake.Name: func() (Driver, error) { return w.backend, nil }}, w.clock)
	w.Reconciler = NewReconciler(counted, w.api, w.drivers, w.recorder, w.clock)
}

// create creates the VirtualMachine vm.
func (w *fixture) create(changes ...change) {
	w.Helper()
	vm := newVM(changes...)
	vm.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: vm.Name}
	w.do(w.client.Create(w.Context(), vm))
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
	w.wrote()
	w.backend.Calls()
}

// vm returns the VirtualMachine vm.
func (w *fixture) vm() *v1alpha1.VirtualMachine {
	w.Helper()
	vm := &v1alpha1.VirtualMachine{}
	w.do(w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "vm"}, vm))
	return vm
}

func (w *fixture) uid() types.UID {
	w.Helper()
	return w.vm().UID
}

// isGone reports whether the VirtualMachine vm is gone.
func (w *fixture) isGone() bool {
	w.Helper()
	err := w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "vm"}, &v1alpha1.VirtualMachine{})
	w.do(client.IgnoreNotFound(err))
	return err != nil
}

// change changes the VirtualMachine vm.
func (w *fixture) change(change change) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		vm := w.vm()
		change(vm)
		return w.client.Update(w.Context(), vm)
	}))
}

// remove deletes the VirtualMachine vm.
func (w *fixture) remove() {
	w.Helper()
	w.do(w.client.Delete(w.Context(), w.vm()))
}

// reconcile reconciles the VirtualMachine vm once.
func (w *fixture) reconcile() reconcile.Result {
	w.Helper()
	result, err := w.Reconcile(w.Context(), w.vm())
	if err != nil {
		w.Fatalf("Reconcile: %v", err)
	}
	return result
}

// reconcileUntilStable reconciles the VirtualMachine vm, advancing the clock by short delays of
// the status, until a reconcile does nothing.
func (w *fixture) reconcileUntilStable() {
	w.Helper()
	for range 40 {
		if w.isGone() {
			return
		}
		before, calls := len(w.writes), w.backend.CallCount()
		result := w.reconcile()
		short := result.RequeueAfter > 0 && result.RequeueAfter <= 5*time.Second
		if len(w.writes) == before && w.backend.CallCount() == calls && !short {
			return
		}
		if short {
			w.advance(result.RequeueAfter)
		}
	}
	w.Fatalf("Still busy after 40 reconciles: %v; %+v", w.writes, w.vm().Status)
}

// wrote returns the write requests since the last call.
func (w *fixture) wrote() []harness.Request {
	writes := w.writes
	w.writes = nil
	return writes
}

// events returns the reasons of the events since the last call.
func (w *fixture) events() []string {
	var reasons []string
	for _, event := range harness.Events(w.recorder) {
		reasons = append(reasons, strings.Join(strings.Fields(event)[:2], " "))
	}
	return reasons
}

// expect fails the test unless the VirtualMachine vm has this phase, and Ready this status and
// reason.
func (w *fixture) expect(phase v1alpha1.Phase, status metav1.ConditionStatus, reason string) {
	w.Helper()
	vm := w.vm()
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

// advance advances the clock.
func (w *fixture) advance(duration time.Duration) { w.clock.SetTime(w.clock.Now().Add(duration)) }

func (w *fixture) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// errLost is the error of a request whose response is lost.
var errLost = errors.New("connection reset")
