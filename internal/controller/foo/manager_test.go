package foo

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// run runs a manager with this controller for the namespace of w, until the test ends.
func (w *world) run() *harness.Requests {
	w.Helper()
	return harness.RunManager(w.T, env.Config(w), w.Client.Scheme(), w.Namespace, Add, Cache)
}

func TestManagerFollowsWhatHappens(t *testing.T) {
	w := newWorld(t)
	foreign := w.foreign("web")
	w.run()
	w.create()
	w.Eventually("the foreign Deployment is reported", func() bool { return w.HasReason(v1alpha1.ReasonErrResourceExists) })
	w.expectUntouched(foreign)

	w.Do(w.Client.Delete(t.Context(), foreign))
	w.Eventually("the name is free and taken", func() bool { return w.deployment("web") != nil })

	w.rollOut("web")
	w.Eventually("the Foo is available", func() bool { return w.HasReason(v1alpha1.ReasonAvailable) })

	w.edit("web", scaled(5))
	w.Eventually("it is scaled back", func() bool { return *w.deployment("web").Spec.Replicas == 3 })

	w.Do(w.Client.Delete(t.Context(), w.deployment("web")))
	w.Eventually("it is back", func() bool { return w.deployment("web") != nil })

	w.Change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
	w.Eventually("the new one is there", func() bool { return w.deployment("web2") != nil })
	w.rollOut("web2")
	w.Eventually("it is renamed", func() bool { return cmp.Equal(w.names(), []string{"web2"}) })

	w.edit("web2", func(d *appsv1.Deployment) { d.OwnerReferences = nil })
	w.Eventually("it was let go", func() bool { return w.HasReason(v1alpha1.ReasonErrResourceExists) })

	w.edit("web2", func(d *appsv1.Deployment) { d.OwnerReferences = ownedBy(w.Object()).OwnerReferences })
	w.Eventually("it was taken again", func() bool { return w.HasReason(v1alpha1.ReasonAvailable) })

	w.Eventually("events were recorded", func() bool {
		var list eventsv1.EventList
		w.Do(w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
		seen := map[string]bool{}
		for _, event := range list.Items {
			if event.Regarding.UID == w.Object().UID {
				seen[event.Reason] = true
			}
		}
		return seen[v1alpha1.ReasonErrResourceExists] && seen[v1alpha1.ReasonDeploymentRepaired] &&
			seen[v1alpha1.ReasonDeploymentCreated] && seen[v1alpha1.ReasonDeploymentDeleted]
	})
}

func TestLongManagerHoldsAThousandFoos(t *testing.T) {
	w := newWorld(t)
	counted := w.run()
	counted.Take()
	taken := func() map[string]int {
		requests := counted.Take()
		delete(requests, http.MethodGet) // a Deployment that is not available for long: its Pods may tell why
		return requests
	}
	const many = 1000
	harness.Parallel(t, many, func(n int) error {
		name := fmt.Sprintf("foo-%d", n)
		foo := newFoo(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = name })
		foo.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: name}
		return w.Client.Create(t.Context(), foo)
	})
	w.Eventually("there is a Deployment for each", func() bool { return len(w.deployments()) == many })
	foos := func() []client.Object {
		var list v1alpha1.FooList
		w.Do(w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
		var all []client.Object
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		return all
	}
	w.Eventually("each Foo has a status", func() bool {
		for _, foo := range foos() {
			if len(statuscheck.Problems(foo)) > 0 {
				return false
			}
		}
		return true
	})
	if diff := cmp.Diff(map[string]int{http.MethodPost: many, http.MethodPut: many}, taken()); diff != "" {
		t.Errorf("requests for %d Foos (-want +got):\n%s", many, diff)
	}

	// What the controller of Deployments reports is one more write, and nothing is
	// written for the others.
	w.create(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "foo-7" })
	w.Eventually("the name is taken", func() bool { return w.HasReason(v1alpha1.ReasonErrResourceExists) })
	w.rollOut("foo-7")
	w.Eventually("one of the Foos is available", func() bool {
		foo := &v1alpha1.Foo{}
		w.Do(w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "foo-7"}, foo))
		return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReady)
	})
	w.Eventually("the one event is recorded", func() bool {
		var list eventsv1.EventList
		w.Do(w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
		return len(list.Items) == 1
	})
	if diff := cmp.Diff(map[string]int{http.MethodPut: 2, http.MethodPost: 1}, taken()); diff != "" {
		t.Errorf("requests while %d Foos are idle (-want +got):\n%s", many, diff)
	}
	statuscheck.Verify(t, foos()...)
	for _, deployment := range w.deployments() {
		if metav1.GetControllerOf(&deployment) == nil {
			t.Errorf("Deployment %s has no owner", deployment.Name)
		}
	}
}
