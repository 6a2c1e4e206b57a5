package foo

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// world is a Foo shop that asks for a Deployment web.
type world struct {
	*stories.World[*v1alpha1.Foo]
	*Reconciler
	// kept is the UID of the Deployment that the Foo asks for, as soon as it has one.
	kept types.UID
}

// newWorld returns a world of its own for each test; they run in parallel.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return startWorld(t, stories.Server)
}

func startWorld(t *testing.T, api stories.API) *world {
	t.Helper()
	w := &world{World: stories.New[*v1alpha1.Foo](t, api, stories.Options{
		Name: "shop", AddToScheme: v1alpha1.AddToScheme, Indexes: Indexes, Now: noon,
		Cached: []client.ObjectList{&appsv1.DeploymentList{}, &v1alpha1.FooList{}},
	})}
	w.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.Foo] {
		w.Reconciler = &Reconciler{kube.NewBase(kind, cached, live, w.Recorder, w.Clock)}
		return w.Reconciler
	}
	w.Restart()
	return w
}

// Step rolls out all Deployments after each reconcile.
func (w *world) Step() (reconcile.Result, error) {
	w.Helper()
	result, err := w.World.Step()
	w.rollOutAll()
	return result, err
}

// create creates a Foo shop that asks for a Deployment web.
func (w *world) create(change ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	w.Helper()
	foo := newFoo(change...)
	foo.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: foo.Name}
	w.Do(w.Client.Create(w.Context(), foo))
	return foo
}

// deployments returns all Deployments, by name.
func (w *world) deployments() []appsv1.Deployment {
	w.Helper()
	var list appsv1.DeploymentList
	w.Do(w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
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
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: labels}}
	deployment.Spec.Replicas = ptr.To[int32](7)
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	deployment.Spec.Template = ownedBy(newFoo()).Spec.Template
	deployment.Spec.Template.Labels = labels
	w.Do(w.Client.Create(w.Context(), deployment))
	return deployment
}

// edit changes the Deployment of that name, as somebody with kubectl does.
func (w *world) edit(name string, change func(*appsv1.Deployment)) {
	w.Helper()
	w.Do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment := w.deployment(name)
		change(deployment)
		return w.Client.Update(w.Context(), deployment)
	}))
}

// rollOut plays the controller of Deployments.
func (w *world) rollOut(name string) {
	w.Helper()
	w.Do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment := w.deployment(name)
		deployment.Status = rolledOut(deployment)
		return w.Client.Status().Update(w.Context(), deployment)
	}))
}

// rollOutAll rolls out all Deployments.
func (w *world) rollOutAll() {
	w.Helper()
	for _, name := range w.names() {
		w.rollOut(name)
	}
}
