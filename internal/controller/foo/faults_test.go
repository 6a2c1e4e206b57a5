package foo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

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
				w.Freeze()
				return w.foreign("web")
			},
		},
		{
			name:  "it looks like ours but has another controller",
			owner: `belongs to Foo "stall"`,
			setUp: func(w *world) *appsv1.Deployment {
				stranger := ownedBy(newFoo(func(f *v1alpha1.Foo) { f.Namespace, f.Name = w.Namespace, "stall" }))
				stranger.UID, stranger.Generation = "", 0
				w.Do(w.Client.Create(w.Context(), stranger))
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
				if result := w.ReconcileOnce(); result.RequeueAfter != 0 {
					t.Errorf("it looks again in %v, though an event will tell", result.RequeueAfter)
				}
			}
			w.expectUntouched(foreign)
			w.ExpectReady("False", v1alpha1.ReasonErrResourceExists)
			if diff := cmp.Diff([]string{fmt.Sprintf(existsEvent, test.owner)}, w.Events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.Restart()
			w.Do(w.Client.Delete(t.Context(), foreign))
			w.Settle()
			w.ExpectReady("False", v1alpha1.ReasonProgressing)
		})
	}
}

func TestAForeignDeploymentThatComesBetweenIsNeverTouched(t *testing.T) {
	t.Run("between the look and the create", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		var foreign *appsv1.Deployment
		w.Meanwhile("create", func() { foreign = w.foreign("web") })
		w.Settle()
		w.expectUntouched(foreign)
		w.ExpectReady("False", v1alpha1.ReasonErrResourceExists)
	})
	t.Run("between the look and the repair", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.Settle()
		w.edit("web", scaled(5))
		var foreign *appsv1.Deployment
		w.Meanwhile("apply", func() {
			w.Do(w.Client.Delete(t.Context(), w.deployment("web")))
			foreign = w.foreign("web")
		})
		if wait := w.ReconcileOnce().RequeueAfter; wait != kube.StalePause {
			t.Errorf("it looks again in %v, not in %v", wait, kube.StalePause)
		}
		w.expectUntouched(foreign)
		w.Settle()
		w.expectUntouched(foreign)
		w.ExpectReady("False", v1alpha1.ReasonErrResourceExists)
	})
	t.Run("between the look and the delete of the old one", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.Settle()
		w.Change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
		var foreign *appsv1.Deployment
		w.Meanwhile("delete", func() {
			w.Do(w.Client.Delete(t.Context(), w.deployment("web")))
			foreign = w.foreign("web")
		})
		w.Settle()
		w.rollOut("web2")
		w.Settle()
		w.expectUntouched(foreign)
	})
}

func TestADeploymentThatGoesBetweenIsNotARepair(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.edit("web", scaled(5))
	w.Meanwhile("apply", func() { w.Do(w.Client.Delete(t.Context(), w.deployment("web"))) })
	w.ReconcileOnce()
	if names := w.names(); len(names) > 0 {
		t.Errorf("the apply created %v again, instead of the next look", names)
	}
	w.Settle()
	if diff := cmp.Diff([]string{"web"}, w.names()); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
}

func TestACacheThatIsBehindIsWaitedForQuietly(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Freeze()
	w.ReconcileOnce()
	w.Wrote()
	before := w.deployment("web")
	for range 3 {
		if got, want := w.ReconcileOnce(), (reconcile.Result{RequeueAfter: kube.StalePause}); got != want {
			t.Errorf("Reconcile returns %v, not %v", got, want)
		}
		w.Pass(kube.StalePause)
	}
	if diff := cmp.Diff([]harness.Request{{Verb: "create"}, {Verb: "create"}, {Verb: "create"}}, w.Wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.expectUntouched(before)
	if events := w.Events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
}

func TestAFooOfTheSameNameWaitsForTheGarbageCollector(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.Do(w.Client.Delete(t.Context(), w.Object()))
	w.create()
	w.Settle()
	w.ExpectReady("False", v1alpha1.ReasonProgressing)
	if events := w.Events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
	w.Do(w.Client.Delete(t.Context(), w.deployment("web"))) // the garbage collector
	w.Settle()
	if got := w.deployment("web"); got == nil || !metav1.IsControlledBy(got, w.Object()) {
		t.Errorf("the Deployment is %s", asJSON(got))
	}
}

func TestANamespaceThatEndsIsNoFailure(t *testing.T) {
	w := newWorld(t)
	w.create()
	// Nobody plays the controller of namespaces, so it stays like this.
	w.Do(w.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}))
	if got := w.ReconcileOnce(); got != (reconcile.Result{}) {
		t.Errorf("Reconcile returns %v", got)
	}
	if got := w.Object().Status.Conditions; len(got) > 0 {
		t.Errorf("conditions are %v", got)
	}
}

func TestAStatusIsNotWrittenOverAChangedFoo(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.ReconcileOnce()
	w.Pass(kube.Holdback)
	stale := w.Object()
	w.Change(func(f *v1alpha1.Foo) { f.Labels = map[string]string{"a": "b"} })
	result, err := w.Reconcile(t.Context(), stale)
	if want := (reconcile.Result{RequeueAfter: kube.StalePause}); err != nil || result != want {
		t.Errorf("Reconcile returns %v, %v; not %v", result, err, want)
	}
	w.Settle()
	w.ExpectReady("False", v1alpha1.ReasonProgressing)
}

func TestATransientErrorIsReturnedAndReported(t *testing.T) {
	w := newWorld(t)
	w.create()
	broken := errors.New("connection refused")
	w.UseClient(harness.Observe(w.Client, func(request harness.Request) error {
		if request.Verb == "create" {
			return broken
		}
		return nil
	}, func(harness.Request) error { return nil }))
	for range 2 {
		if _, err := w.Reconcile(t.Context(), w.Object()); !errors.Is(err, broken) {
			t.Errorf("Reconcile returns %v", err)
		}
		w.Pass(kube.Holdback)
	}
	w.ExpectReady("False", v1alpha1.ReasonDeploymentWriteFailed)
	if diff := cmp.Diff([]string{
		`Warning DeploymentWriteFailed Deployment "web" could not be written, the write is retried: create Deployment ` + w.Namespace + `/web: connection refused`,
	}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.Restart()
	w.Settle()
	w.ExpectReady("False", v1alpha1.ReasonProgressing)
}

// expectKept fails the test if the Deployment that the Foo asks for is no longer the one that it was.
func (w *world) expectKept() {
	w.Helper()
	name := w.Object().Spec.DeploymentName
	deployment := w.deployment(name)
	if w.kept != "" && (deployment == nil || deployment.UID != w.kept) {
		w.Errorf("Deployment %s was deleted", name)
	}
	if deployment != nil {
		w.kept = deployment.UID
	}
}

// TestStories tells what happens to a Foo that has settled. In the end, there is one Deployment that has
// what the Foo says.
func TestStories(t *testing.T) {
	deleted := func(w *world) { w.Do(w.Client.Delete(w.Context(), w.deployment("web"))) }
	renamed := func(w *world) { w.Change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" }) }
	renamedTwice := func(w *world) {
		renamed(w)
		w.Change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName, *f.Spec.Replicas = "web3", 0 })
	}
	table := stories.Table[*world]{New: startWorld, Steps: 5, Always: (*world).expectKept, Finish: func(w *world) {
		w.Settle()
		w.rollOutAll()
		w.Settle()
	}}
	for _, story := range []struct {
		name        string
		happen      func(*world)
		deployment  string
		isUnsettled bool
	}{
		{"the Foo is created", func(w *world) { w.create() }, "web", true},
		{"nothing", func(*world) {}, "web", false},
		{"the Deployment was deleted", deleted, "web", false},
		{"the Deployment was scaled", func(w *world) { w.edit("web", scaled(9)) }, "web", false},
		{"the Foo was scaled", func(w *world) { w.Change(func(f *v1alpha1.Foo) { *f.Spec.Replicas = 4 }) }, "web", false},
		{"the Foo was renamed", renamed, "web2", false},
		{"the Foo was renamed twice, and scaled, before anybody looked", renamedTwice, "web3", false},
	} {
		table.Stories = append(table.Stories, stories.Story[*world]{
			Name: story.name,
			Before: func(w *world) {
				if !story.isUnsettled {
					w.create()
					w.Settle()
				}
			},
			Happen: story.happen,
			End: func(w *world) {
				if diff := cmp.Diff([]string{story.deployment}, w.names()); diff != "" {
					w.Fatalf("Deployments (-want +got):\n%s", diff)
				}
				if found := differences(w.Object(), w.deployment(story.deployment)); len(found) > 0 {
					w.Errorf("the Deployment has %v", found)
				}
				w.ExpectReady("True", v1alpha1.ReasonAvailable)
			},
		})
	}
	table.Run(t)
}

// A message is for people: nothing in it may change by itself.
func TestNothingFlaps(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	before := w.Object()
	for n := range 10 {
		w.Pass(kube.RejectedPause(noon, noon))
		if result := w.ReconcileOnce(); result.RequeueAfter != podCheckInterval {
			t.Errorf("look %d: again in %v", n, result.RequeueAfter)
		}
	}
	if diff := cmp.Diff(before, w.Object()); diff != "" {
		t.Errorf("nothing happened, and the Foo changed (-before +after):\n%s", diff)
	}
}
