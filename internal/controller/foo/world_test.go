package foo

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// world is a namespace of an API server without the controllers of Kubernetes, which
// the test plays itself, and a Reconciler that is called directly.
type world struct {
	*testing.T
	namespace string
	client    client.WithWatch
	clock     *clocktesting.FakePassiveClock
	recorder  *events.FakeRecorder
	// writes are the requests that changed something since the last look.
	writes []harness.Request
	*Reconciler
}

// newWorld returns a world of its own for each test; they run in parallel.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	config := env.Config(t)
	w := &world{
		T:         t,
		namespace: env.Namespace(t),
		client:    harness.Client(t, config, harness.Scheme(t, v1alpha1.AddToScheme), Indexes...),
		clock:     clocktesting.NewFakePassiveClock(noon),
		recorder:  events.NewFakeRecorder(100),
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
			w.writes = append(w.writes, request)
		}
		return nil
	}, func(harness.Request) error { return nil })
	w.Reconciler = NewReconciler(counted, w.client, w.recorder, w.clock)
}

// create creates a Foo shop that asks for a Deployment web.
func (w *world) create(change ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	w.Helper()
	foo := newFoo(change...)
	foo.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: foo.Name}
	w.do(w.client.Create(w.Context(), foo))
	return foo
}

// foo returns the Foo shop as it is.
func (w *world) foo() *v1alpha1.Foo {
	w.Helper()
	foo := &v1alpha1.Foo{}
	w.do(w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "shop"}, foo))
	return foo
}

// change changes the Foo shop.
func (w *world) change(change func(*v1alpha1.Foo)) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		foo := w.foo()
		change(foo)
		return w.client.Update(w.Context(), foo)
	}))
}

// deployments returns all Deployments, by name.
func (w *world) deployments() []appsv1.Deployment {
	w.Helper()
	var list appsv1.DeploymentList
	w.do(w.client.List(w.Context(), &list, client.InNamespace(w.namespace)))
	return list.Items
}

// deployment returns the Deployment of that name; nil if there is none.
func (w *world) deployment(name string) *appsv1.Deployment {
	w.Helper()
	all := w.deployments()
	i := slices.IndexFunc(all, func(d appsv1.Deployment) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// names returns the names of all Deployments.
func (w *world) names() []string {
	w.Helper()
	var names []string
	for _, deployment := range w.deployments() {
		names = append(names, deployment.Name)
	}
	return names
}

// foreign creates a Deployment of that name without an owner.
func (w *world) foreign(name string) *appsv1.Deployment {
	w.Helper()
	labels := map[string]string{"app": "mine"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels}}
	deployment.Spec.Replicas = ptr.To[int32](7)
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	deployment.Spec.Template = ownedBy(newFoo()).Spec.Template
	deployment.Spec.Template.Labels = labels
	w.do(w.client.Create(w.Context(), deployment))
	return deployment
}

// edit changes the Deployment of that name, as somebody with kubectl does.
func (w *world) edit(name string, change func(*appsv1.Deployment)) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment := w.deployment(name)
		change(deployment)
		return w.client.Update(w.Context(), deployment)
	}))
}

// rollOut plays the controller of Deployments.
func (w *world) rollOut(name string) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment := w.deployment(name)
		deployment.Status = rolledOut(deployment)
		return w.client.Status().Update(w.Context(), deployment)
	}))
}

// rollOutAll rolls out all Deployments.
func (w *world) rollOutAll() {
	w.Helper()
	for _, name := range w.names() {
		w.rollOut(name)
	}
}

// reconcile reconciles the Foo shop once.
func (w *world) reconcile() reconcile.Result {
	w.Helper()
	result, err := w.Reconcile(w.Context(), w.foo())
	if err != nil {
		w.Fatalf("Reconcile: %v", err)
	}
	return result
}

// settle reconciles the Foo shop, and lets the time pass that Reconcile asks for,
// until there is nothing more to do.
func (w *world) settle() {
	w.Helper()
	for range 20 {
		before := len(w.writes)
		result := w.reconcile()
		if result.RequeueAfter == 0 && len(w.writes) == before {
			return
		}
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	w.Fatalf("Still busy after 20 reconciles: %v", w.writes)
}

// wrote returns the requests that changed something since the last call.
func (w *world) wrote() []harness.Request {
	writes := w.writes
	w.writes = nil
	return writes
}

// events returns the events since the last call.
func (w *world) events() []string { return harness.Events(w.recorder) }

// ready returns Ready of the Foo shop, without the time.
func (w *world) ready() metav1.Condition {
	w.Helper()
	foo := w.foo()
	statuscheck.Verify(w, foo)
	for _, condition := range foo.Status.Conditions {
		condition.LastTransitionTime = metav1.Time{}
		return condition
	}
	return metav1.Condition{}
}

// expectReady fails the test if Ready of the Foo shop has not this status and reason.
func (w *world) expectReady(status metav1.ConditionStatus, reason string) {
	w.Helper()
	if got := w.ready(); got.Status != status || got.Reason != reason {
		w.Errorf("Ready is %s, %s: %s; want %s, %s", got.Status, got.Reason, got.Message, status, reason)
	}
}

// pass lets time pass.
func (w *world) pass(duration time.Duration) { w.clock.SetTime(w.clock.Now().Add(duration)) }

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
