package foo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// freeze makes the Reconciler read only what there is now.
func (w *world) freeze() {
	w.Helper()
	w.useClient(harness.Frozen(w, w.client, w.namespace, Indexes, &appsv1.DeploymentList{}, &v1alpha1.FooList{}))
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

// expectUntouched fails the test if the Deployment has been written since.
func (w *world) expectUntouched(before *appsv1.Deployment) {
	w.Helper()
	if diff := cmp.Diff(before, w.deployment(before.Name)); diff != "" {
		w.Errorf("Deployment %s was touched (-before +after):\n%s", before.Name, diff)
	}
}

const existsEvent = `Warning ErrResourceExists Deployment "web" exists and %s. Change spec.deploymentName or delete that Deployment`

func TestAForeignDeploymentIsNeverTouched(t *testing.T) {
	for _, test := range []struct {
		name  string
		setUp func(*world) *appsv1.Deployment
		owner string
	}{
		{
			name: "it is there", owner: "has no owner",
			setUp: func(w *world) *appsv1.Deployment { return w.foreign("web") },
		},
		{
			name: "it is there, and the cache does not know", owner: "does not belong to this Foo",
			setUp: func(w *world) *appsv1.Deployment {
				w.freeze()
				return w.foreign("web")
			},
		},
		{
			name:  "it looks like ours but has another controller",
			owner: `belongs to Foo "stall"`,
			setUp: func(w *world) *appsv1.Deployment {
				stranger := ownedBy(newFoo(func(f *v1alpha1.Foo) { f.Namespace, f.Name = w.namespace, "stall" }))
				stranger.UID, stranger.Generation = "", 0
				w.do(w.client.Create(w.Context(), stranger))
				return stranger
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.create()
			test.setUp(w)
			foreign := w.deployment("web")
			for range 5 {
				// With the Foo as it was at first, as it may be in a cache.
				if result := w.reconcile(); result.RequeueAfter != 0 {
					t.Errorf("it looks again in %v, though an event will tell", result.RequeueAfter)
				}
			}
			w.expectUntouched(foreign)
			w.expectReady("False", v1alpha1.ReasonErrResourceExists)
			if diff := cmp.Diff([]string{fmt.Sprintf(existsEvent, test.owner)}, w.events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.restart()
			w.do(w.client.Delete(t.Context(), foreign))
			w.settle()
			w.expectReady("False", v1alpha1.ReasonProgressing)
		})
	}
}

func TestAForeignDeploymentThatComesBetweenIsNeverTouched(t *testing.T) {
	t.Run("between the look and the create", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		var foreign *appsv1.Deployment
		w.meanwhile("create", func() { foreign = w.foreign("web") })
		w.settle()
		w.expectUntouched(foreign)
		w.expectReady("False", v1alpha1.ReasonErrResourceExists)
	})
	t.Run("between the look and the repair", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.settle()
		w.edit("web", scaled(5))
		var foreign *appsv1.Deployment
		w.meanwhile("apply", func() {
			w.do(w.client.Delete(t.Context(), w.deployment("web")))
			foreign = w.foreign("web")
		})
		if wait := w.reconcile().RequeueAfter; wait != kube.StalePause {
			t.Errorf("it looks again in %v, not in %v", wait, kube.StalePause)
		}
		w.expectUntouched(foreign)
		w.settle()
		w.expectUntouched(foreign)
		w.expectReady("False", v1alpha1.ReasonErrResourceExists)
	})
	t.Run("between the look and the delete of the old one", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.settle()
		w.change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
		var foreign *appsv1.Deployment
		w.meanwhile("delete", func() {
			w.do(w.client.Delete(t.Context(), w.deployment("web")))
			foreign = w.foreign("web")
		})
		w.settle()
		w.rollOut("web2")
		w.settle()
		w.expectUntouched(foreign)
	})
}

func TestADeploymentThatGoesBetweenIsNotARepair(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.settle()
	w.edit("web", scaled(5))
	w.meanwhile("apply", func() { w.do(w.client.Delete(t.Context(), w.deployment("web"))) })
	w.reconcile()
	if names := w.names(); len(names) > 0 {
		t.Errorf("the apply created %v again, instead of the next look", names)
	}
	w.settle()
	if diff := cmp.Diff([]string{"web"}, w.names()); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
}

func TestACacheThatIsBehindIsWaitedForQuietly(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.freeze()
	w.reconcile()
	w.wrote()
	before := w.deployment("web")
	for range 3 {
		if got, want := w.reconcile(), (reconcile.Result{RequeueAfter: kube.StalePause}); got != want {
			t.Errorf("Reconcile returns %v, not %v", got, want)
		}
		w.pass(kube.StalePause)
	}
	if diff := cmp.Diff([]harness.Request{{Verb: "create"}, {Verb: "create"}, {Verb: "create"}}, w.wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.expectUntouched(before)
	if events := w.events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
}

func TestACacheThatIsBehindDoesNotUndoARename(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.settle()
	w.rollOut("web")
	w.change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
	w.reconcile()
	// Another replica becomes the leader. It knows the new Deployments, but the old Foo.
	stale := w.foo()
	stale.Generation--
	stale.Spec.DeploymentName = "web"
	current := w.deployment("web2")
	w.restart()
	if _, err := w.Reconcile(t.Context(), stale); err != nil {
		t.Errorf("Reconcile: %v", err)
	}
	w.expectUntouched(current)
	w.rollOut("web2")
	w.settle()
	if diff := cmp.Diff([]string{"web2"}, w.names()); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
}

func TestAFooOfTheSameNameWaitsForTheGarbageCollector(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.settle()
	w.do(w.client.Delete(t.Context(), w.foo()))
	w.create()
	w.settle()
	w.expectReady("False", v1alpha1.ReasonProgressing)
	if events := w.events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
	w.do(w.client.Delete(t.Context(), w.deployment("web"))) // the garbage collector
	w.settle()
	if got := w.deployment("web"); got == nil || !metav1.IsControlledBy(got, w.foo()) {
		t.Errorf("the Deployment is %s", asJSON(got))
	}
}

func TestANamespaceThatEndsIsNoFailure(t *testing.T) {
	w := newWorld(t)
	w.create()
	// Nobody plays the controller of namespaces, so it stays like this.
	w.do(w.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
	if got := w.reconcile(); got != (reconcile.Result{}) {
		t.Errorf("Reconcile returns %v", got)
	}
	if got := w.foo().Status.Conditions; len(got) > 0 {
		t.Errorf("conditions are %v", got)
	}
}

func TestAStatusIsNotWrittenOverAChangedFoo(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.reconcile()
	w.pass(kube.Holdback)
	stale := w.foo()
	w.change(func(f *v1alpha1.Foo) { f.Labels = map[string]string{"a": "b"} })
	result, err := w.Reconcile(t.Context(), stale)
	if want := (reconcile.Result{RequeueAfter: kube.StalePause}); err != nil || result != want {
		t.Errorf("Reconcile returns %v, %v; not %v", result, err, want)
	}
	w.settle()
	w.expectReady("False", v1alpha1.ReasonProgressing)
}

func TestATransientErrorIsReturnedAndReported(t *testing.T) {
	w := newWorld(t)
	w.create()
	broken := errors.New("connection refused")
	w.useClient(harness.Observe(w.client, func(request harness.Request) error {
		if request.Verb == "create" {
			return broken
		}
		return nil
	}, func(harness.Request) error { return nil }))
	for range 2 {
		if _, err := w.Reconcile(t.Context(), w.foo()); !errors.Is(err, broken) {
			t.Errorf("Reconcile returns %v", err)
		}
		w.pass(kube.Holdback)
	}
	w.expectReady("False", v1alpha1.ReasonDeploymentWriteFailed)
	if diff := cmp.Diff([]string{
		`Warning DeploymentWriteFailed Deployment "web" could not be written, the write is retried: create Deployment ` + w.namespace + `/web: connection refused`,
	}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.restart()
	w.settle()
	w.expectReady("False", v1alpha1.ReasonProgressing)
}

// stories are what happens to a Foo that has settled. Its Deployment is then as in the
// Foo, and there is no other.
var stories = []struct {
	name   string
	happen func(*world)
	names  []string
}{
	{"nothing", func(*world) {}, []string{"web"}},
	{"the Deployment was deleted", func(w *world) { w.do(w.client.Delete(w.Context(), w.deployment("web"))) }, []string{"web"}},
	{"the Deployment was scaled", func(w *world) { w.edit("web", scaled(9)) }, []string{"web"}},
	{"the Foo was scaled", func(w *world) { w.change(func(f *v1alpha1.Foo) { *f.Spec.Replicas = 4 }) }, []string{"web"}},
	{
		"the Foo was renamed",
		func(w *world) { w.change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" }) },
		[]string{"web2"},
	},
	{
		"the Foo was renamed twice, and scaled, before anybody looked",
		func(w *world) {
			w.change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
			w.change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName, *f.Spec.Replicas = "web3", 0 })
		},
		[]string{"web3"},
	},
}

// Whatever write is the last one of a process, or fails: the next process ends where an
// undisturbed one does.
func TestAKillAtAnyWrite(t *testing.T) {
	type killed struct{}
	for _, fault := range []struct {
		name   string
		moment harness.Moment
		raise  func() error
	}{
		{"killed before a write", harness.Before, func() error { panic(killed{}) }},
		{"killed after a write", harness.After, func() error { panic(killed{}) }},
		{"a write is lost", harness.Before, func() error { return errors.New("connection reset") }},
		{"the answer to a write is lost", harness.After, func() error { return errors.New("connection reset") }},
	} {
		for _, story := range stories {
			t.Run(fault.name+", "+story.name, func(t *testing.T) {
				w := newWorld(t)
				w.create()
				w.settle()
				for step := 0; ; step++ {
					story.happen(w)
					faulty, reached := harness.OnWrite(w.client, step, fault.moment, fault.raise)
					w.useClient(faulty)
					func() {
						defer func() {
							if r := recover(); r != nil && r != any(killed{}) {
								panic(r)
							}
						}()
						for range 5 {
							result, _ := w.Reconcile(t.Context(), w.foo())
							w.rollOutAll()
							w.pass(result.RequeueAfter)
						}
					}()
					w.restart()
					w.settle()
					w.rollOutAll()
					w.settle()
					if diff := cmp.Diff(story.names, w.names()); diff != "" {
						t.Fatalf("step %d: Deployments (-want +got):\n%s", step, diff)
					}
					foo := w.foo()
					deployment := w.deployment(story.names[0])
					if found := differences(foo, deployment); len(found) > 0 {
						t.Fatalf("step %d: the Deployment has %v", step, found)
					}
					w.rollOut(deployment.Name)
					w.settle()
					w.expectReady("True", v1alpha1.ReasonAvailable)
					if !reached() {
						return
					}
					// Once more from the start.
					w.do(w.client.DeleteAllOf(t.Context(), &appsv1.Deployment{}, client.InNamespace(w.namespace)))
					w.do(w.client.Delete(t.Context(), foo))
					w.create()
					w.settle()
				}
			})
		}
	}
}

// A message is for people: nothing in it may change by itself.
func TestNothingFlaps(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.settle()
	before := w.foo()
	for n := range 10 {
		w.pass(kube.RejectedPause(noon, noon))
		if result := w.reconcile(); result.RequeueAfter != 0 {
			t.Errorf("look %d: again in %v", n, result.RequeueAfter)
		}
	}
	if diff := cmp.Diff(before, w.foo()); diff != "" {
		t.Errorf("nothing happened, and the Foo changed (-before +after):\n%s", diff)
	}
}
