package sampleresource

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func TestMain(m *testing.M) { env.Main(m) }

// world is a namespace of an API server without kubelets and the controllers of
// Kubernetes, which the test plays itself, and a Reconciler that is called directly.
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
	w := newEmptyWorld(t)
	w.addServiceAccount()
	return w
}

// newEmptyWorld returns a world with a namespace that is so new that nothing is in it.
func newEmptyWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T:         t,
		namespace: env.Namespace(t),
		client:    harness.Client(t, env.Config(t), harness.Scheme(t, samplev1.AddToScheme), Indexes...),
		// What the API server notes of deletions is of this time, too.
		clock:    clocktesting.NewFakePassiveClock(time.Now()),
		recorder: events.NewFakeRecorder(100),
	}
	w.restart()
	return w
}

// addServiceAccount does what the controller of ServiceAccounts does in a namespace.
func (w *world) addServiceAccount() {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}}
	if err := w.client.Create(w.Context(), account); !apierrors.IsAlreadyExists(err) {
		w.do(err)
	}
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

// freeze makes the Reconciler read only what there is now.
func (w *world) freeze() {
	w.Helper()
	w.useClient(harness.Frozen(w, w.client, w.namespace, Indexes, &corev1.PodList{}, &samplev1.SampleResourceList{}))
}

// meanwhile calls something else just before the next request with that verb.
func (w *world) meanwhile(verb string, something func()) {
	done := false
	w.useClient(harness.Observe(w.client, func(request harness.Request) error {
		if request.Verb == verb && !done {
			done = true
			something()
		}
		return nil
	}, func(harness.Request) error { return nil }))
}

// create creates the SampleResource sample.
func (w *world) create() {
	w.Helper()
	sample := newSample()
	sample.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: sample.Name}
	w.do(w.client.Create(w.Context(), sample))
}

// createReady creates the SampleResource sample and lets its Pod become ready.
func (w *world) createReady() {
	w.Helper()
	w.create()
	w.settle()
	w.report("sample", ready)
	w.settle()
	w.events()
	w.wrote()
}

// sample returns the SampleResource sample as it is.
func (w *world) sample() *samplev1.SampleResource {
	w.Helper()
	sample := &samplev1.SampleResource{}
	w.do(w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "sample"}, sample))
	return sample
}

// change changes the SampleResource sample.
func (w *world) change(change func(*samplev1.SampleResource)) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		sample := w.sample()
		change(sample)
		return w.client.Update(w.Context(), sample)
	}))
}

// pods returns all Pods, by name.
func (w *world) pods() map[string]*corev1.Pod {
	w.Helper()
	var list corev1.PodList
	w.do(w.client.List(w.Context(), &list, client.InNamespace(w.namespace)))
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

// pod returns the Pod of that name; nil if there is none.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	return w.pods()[name]
}

// foreign creates a Pod of that name without an owner.
func (w *world) foreign(name string) *corev1.Pod {
	w.Helper()
	pod := newPod(newSample(func(s *samplev1.SampleResource) { s.Namespace = w.namespace }), name)
	pod.OwnerReferences = nil
	w.do(w.client.Create(w.Context(), pod))
	return w.pod(name)
}

// schedule plays the scheduler: the Pod gets a node, which does not answer.
func (w *world) schedule(name string) {
	w.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "away"}}
	w.do(w.client.SubResource("binding").Create(w.Context(), w.pod(name), binding))
}

// report plays the kubelet.
func (w *world) report(name string, change func(*corev1.Pod)) {
	w.Helper()
	w.do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod := w.pod(name)
		change(pod)
		return w.client.Status().Update(w.Context(), pod)
	}))
}

func ready(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation}}
}

// remove deletes a Pod; with force, without waiting for its node.
func (w *world) remove(name string, force bool) {
	w.Helper()
	var options []client.DeleteOption
	if force {
		options = append(options, client.GracePeriodSeconds(0))
	}
	w.do(w.client.Delete(w.Context(), w.pod(name), options...))
}

// reconcile reconciles the SampleResource sample once.
func (w *world) reconcile() reconcile.Result {
	w.Helper()
	result, err := w.Reconcile(w.Context(), w.sample())
	if err != nil {
		w.Fatalf("Reconcile: %v", err)
	}
	return result
}

// settle reconciles the SampleResource sample, and lets the seconds pass for which a
// status is held back, until there is nothing more to do for now.
func (w *world) settle() {
	w.Helper()
	for range 20 {
		before := len(w.writes)
		result := w.reconcile()
		short := result.RequeueAfter <= 2*time.Second
		if len(w.writes) == before && (result.RequeueAfter == 0 || !short) {
			return
		}
		if short {
			w.pass(result.RequeueAfter)
		}
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

// expectReady fails the test if Ready of the SampleResource has not this status and
// reason.
func (w *world) expectReady(status metav1.ConditionStatus, reason string) {
	w.Helper()
	sample := w.sample()
	statuscheck.Verify(w, sample)
	for _, got := range sample.Status.Conditions {
		if got.Status != status || got.Reason != reason {
			w.Errorf("Ready is %s, %s: %s; want %s, %s", got.Status, got.Reason, got.Message, status, reason)
		}
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
