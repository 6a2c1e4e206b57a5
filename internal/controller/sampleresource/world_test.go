package sampleresource

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// world is a SampleResource named sample.
type world struct {
	*stories.World[*samplev1.SampleResource]
	*Reconciler
}

// newWorld returns a world of its own for each test; they run in parallel.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return startWorld(t, stories.Server)
}

func startWorld(t *testing.T, api stories.API) *world {
	t.Helper()
	w := newEmptyWorld(t, api)
	w.addServiceAccount()
	return w
}

// newEmptyWorld returns a world with a namespace that is so new that nothing is in it.
func newEmptyWorld(t *testing.T, api stories.API) *world {
	t.Helper()
	w := &world{World: stories.New[*samplev1.SampleResource](t, api, stories.Options{
		Name: "sample", AddToScheme: samplev1.AddToScheme, Indexes: Indexes,
		Cached: []client.ObjectList{&corev1.PodList{}, &samplev1.SampleResourceList{}},
		// What the API server notes of deletions is of this time, too.
		Now: time.Now(),
		// Longer pauses follow failures.
		Pause: 2 * time.Second,
	})}
	w.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*samplev1.SampleResource] {
		w.Reconciler = &Reconciler{kube.NewBase(kind, cached, live, w.Recorder, w.Clock)}
		return w.Reconciler
	}
	w.Restart()
	return w
}

// addServiceAccount does what the controller of ServiceAccounts does in a namespace.
func (w *world) addServiceAccount() {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "default"}}
	if err := w.Client.Create(w.Context(), account); !apierrors.IsAlreadyExists(err) {
		w.Do(err)
	}
}

// create creates the SampleResource sample.
func (w *world) create() {
	w.Helper()
	sample := newSample()
	sample.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: sample.Name}
	w.Do(w.Client.Create(w.Context(), sample))
}

// createReady creates the SampleResource sample and lets its Pod become ready.
func (w *world) createReady() {
	w.Helper()
	w.create()
	w.Settle()
	w.report("sample", ready)
	w.Settle()
	w.Events()
	w.Wrote()
}

// pods returns all Pods, by name.
func (w *world) pods() map[string]*corev1.Pod {
	w.Helper()
	var list corev1.PodList
	w.Do(w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
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
	pod := newPod(newSample(func(s *samplev1.SampleResource) { s.Namespace = w.Namespace }), name)
	pod.OwnerReferences = nil
	w.Do(w.Client.Create(w.Context(), pod))
	return w.pod(name)
}

// schedule plays the scheduler: the Pod gets a node, which does not answer.
func (w *world) schedule(name string) {
	w.Helper()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "away"}}
	w.Do(w.Client.SubResource("binding").Create(w.Context(), w.pod(name), binding))
}

// report plays the kubelet.
func (w *world) report(name string, change func(*corev1.Pod)) {
	w.Helper()
	w.Do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod := w.pod(name)
		change(pod)
		return w.Client.Status().Update(w.Context(), pod)
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
	w.Do(w.Client.Delete(w.Context(), w.pod(name), options...))
}
