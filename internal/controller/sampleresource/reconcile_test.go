package sampleresource

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestTwoWritesUntilReady(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.ReconcileOnce()
	w.Pass(kube.Holdback / 2)
	w.report("sample", ready)
	w.Settle()
	if diff := cmp.Diff([]harness.Request{{Verb: "create"}, {Verb: "update", Subresource: "status"}}, w.Wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.ExpectReady("True", samplev1.ReasonPodReady)
	if events := w.Events(); len(events) > 0 {
		t.Errorf("there are events, each of which is a write: %q", events)
	}
}

func TestADeletedPodComesBack(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	uid := w.pod("sample").UID
	w.remove("sample", true)
	w.Settle()
	if pod := w.pod("sample"); pod == nil || pod.UID == uid {
		t.Error("there is no new Pod")
	}
	if status := w.Object().Status; status.Replacements != 0 || status.ConsecutiveFailures != 0 {
		t.Errorf("a deleted Pod was counted as a failure: %s", asJSON(status))
	}
	if diff := cmp.Diff([]string{`Normal PodCreated Created Pod "sample"`}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAChangedImageIsChangedInPlace(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	before := w.pod("sample")
	w.Change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.30" })
	w.Settle()
	after := w.pod("sample")
	if after.UID != before.UID || podImage(after) != "nginx:1.30" {
		t.Errorf("the Pod is another one, or runs %q", podImage(after))
	}
	if diff := cmp.Diff([]string{`Normal ImageChanged Changed the image of Pod "sample" from "nginx:1.29" to "nginx:1.30"`}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// The container of the old image is still ready.
	w.ExpectReady("False", samplev1.ReasonPodStarting)
	w.report("sample", ready)
	w.Settle()
	w.ExpectReady("True", samplev1.ReasonPodReady)
}

func TestAFailedPodIsReplacedAfterAPause(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	var pauses []float64
	for n := range int32(8) {
		uid := w.pod("sample").UID
		w.report("sample", failed)
		pause := w.ReconcileOnce().RequeueAfter
		pauses = append(pauses, pause.Seconds())
		w.Settle()
		w.ExpectReady("False", samplev1.ReasonPodFailed)
		if pod := w.pod("sample"); pod == nil || pod.UID != uid {
			t.Fatal("the failed Pod, whose logs tell why it failed, is gone before its time")
		}
		w.Pass(pause)
		w.Settle()
		if pod := w.pod("sample"); pod == nil || pod.UID == uid {
			t.Fatal("there is no new Pod")
		}
		status := w.Object().Status
		if status.Replacements != n+1 || status.ConsecutiveFailures != n+1 {
			t.Fatalf("failure %d: the status is %s", n+1, asJSON(status))
		}
	}
	if diff := cmp.Diff([]float64{10, 20, 40, 80, 160, 300, 300, 300}, pauses); diff != "" {
		t.Errorf("pauses in seconds (-want +got):\n%s", diff)
	}
	w.Events()
	w.report("sample", ready)
	w.Settle()
	w.report("sample", failed)
	w.ReconcileOnce()
	if got := w.Object().Status.ConsecutiveFailures; got != 1 {
		t.Errorf("a Pod became ready, and the next failure is number %d in a row", got)
	}
	if events := w.Events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning PodFailed ") {
		t.Errorf("events are %q", events)
	}
}

func TestANewImageEndsThePause(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	for range 5 {
		w.report("sample", failed)
		w.Pass(w.ReconcileOnce().RequeueAfter)
		w.Settle()
	}
	w.report("sample", failed)
	w.Settle()
	uid := w.pod("sample").UID
	w.Change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.30" })
	w.Settle()
	if pod := w.pod("sample"); pod == nil || pod.UID == uid || podImage(pod) != "nginx:1.30" {
		t.Errorf("there is no new Pod with the new image: %s", asJSON(pod))
	}
	if got := w.Object().Status.ConsecutiveFailures; got != 0 {
		t.Errorf("the new image begins with %d failures", got)
	}
}

func TestAPodOnALostNodeIsTakenOver(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	w.schedule("sample")
	w.remove("sample", false) // as the eviction from a node that does not answer does
	w.Settle()
	w.ExpectReady("False", samplev1.ReasonPodTerminating)
	if names := len(w.pods()); names != 1 {
		t.Fatalf("there are %d Pods", names)
	}
	stuck := w.pod("sample").DeletionTimestamp.Add(stuckAfter)
	if again := w.Clock.Now().Add(w.ReconcileOnce().RequeueAfter); again.Sub(stuck).Abs() > time.Millisecond {
		t.Errorf("it looks again at %v, not at %v", again, stuck)
	}
	w.Clock.SetTime(stuck)
	w.Settle()
	if w.pod("sample-1") == nil {
		t.Fatal("there is no second Pod")
	}
	w.report("sample-1", ready)
	w.Settle()
	w.ExpectReady("True", samplev1.ReasonPodReady)
	if got := w.Object().Status.PodName; got != "sample-1" {
		t.Errorf("the status names Pod %q", got)
	}
	if w.pod("sample").DeletionGracePeriodSeconds == nil || *w.pod("sample").DeletionGracePeriodSeconds == 0 {
		t.Error("the Pod on the lost node was deleted by force")
	}
	// The node is back, and the first Pod comes to its end.
	w.remove("sample", true)
	w.Settle()
	if _, found := w.pods()["sample-1"]; !found || len(w.pods()) != 1 {
		t.Errorf("the Pods are %v", w.pods())
	}
	// Gone for another reason, it comes back under its own name.
	w.remove("sample-1", true)
	w.Settle()
	if _, found := w.pods()["sample"]; !found || len(w.pods()) != 1 {
		t.Errorf("the Pods are %v", w.pods())
	}
}

func TestAForeignPodIsNeverTouched(t *testing.T) {
	for _, test := range []struct {
		name  string
		stale bool
	}{{"it is there", false}, {"it is there, and the cache does not know", true}} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.create()
			if test.stale {
				w.Freeze()
			}
			foreign := w.foreign("sample")
			for range 5 {
				if result := w.ReconcileOnce(); result.RequeueAfter != 0 {
					t.Errorf("it looks again in %v, though an event will tell", result.RequeueAfter)
				}
			}
			w.ExpectReady("False", samplev1.ReasonErrResourceExists)
			if diff := cmp.Diff(foreign, w.pod("sample")); diff != "" {
				t.Errorf("the Pod was touched (-before +after):\n%s", diff)
			}
			if events := w.Events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning ErrResourceExists ") {
				t.Errorf("events are %q", events)
			}
			w.Restart()
			w.remove("sample", true)
			w.Settle()
			w.ExpectReady("False", samplev1.ReasonPodStarting)
		})
	}
}

func TestAForeignPodThatComesBetweenIsNeverTouched(t *testing.T) {
	for verb, happen := range map[string]func(*world){
		"create": func(w *world) { w.remove("sample", true) },
		"patch":  func(w *world) { w.Change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "other" }) },
		"delete": func(w *world) {
			w.report("sample", failed)
			w.Pass(w.ReconcileOnce().RequeueAfter)
		},
	} {
		t.Run("between the look and the "+verb, func(t *testing.T) {
			w := newWorld(t)
			w.createReady()
			happen(w)
			var foreign *corev1.Pod
			w.Meanwhile(verb, func() {
				if w.pod("sample") != nil {
					w.remove("sample", true)
				}
				foreign = w.foreign("sample")
			})
			w.Settle()
			if foreign == nil {
				t.Fatalf("there was no %s", verb)
			}
			if diff := cmp.Diff(foreign, w.pod("sample")); diff != "" {
				t.Errorf("the Pod was touched (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAForeignPodOfALaterNameIsPassedOver(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	w.foreign("sample-1")
	w.schedule("sample")
	w.remove("sample", false)
	w.Clock.SetTime(w.pod("sample").DeletionTimestamp.Add(stuckAfter))
	w.Settle()
	if w.pod("sample-2") == nil {
		t.Errorf("the Pods are %v", w.pods())
	}
}

func TestTooManyPodsBecomeOne(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	sample := w.Object()
	for n := 1; n < 4; n++ {
		w.Do(w.Client.Create(t.Context(), newPod(sample, podName(sample, n))))
	}
	oldest := slices.MinFunc([]corev1.Pod{*w.pod("sample"), *w.pod("sample-1"), *w.pod("sample-2"), *w.pod("sample-3")}, byAge)
	w.Settle()
	pods := w.pods()
	if len(pods) != 1 || pods[oldest.Name] == nil {
		t.Errorf("the Pods are %v", pods)
	}
}

func TestANewNamespaceIsNoMistake(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t, stories.Server)
	w.create()
	if _, err := w.Reconcile(t.Context(), w.Object()); !isServiceAccountMissing(err) {
		t.Fatalf("Reconcile returns %v", err)
	}
	if got := w.Object().Status.Conditions; len(got) > 0 {
		t.Errorf("that was not held back: %v", got)
	}
	w.addServiceAccount()
	w.Settle()
	w.ExpectReady("False", samplev1.ReasonPodStarting)
	if events := w.Events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
}

func TestASampleResourceOfTheSameNameWaitsForTheGarbageCollector(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	w.Do(w.Client.Delete(t.Context(), w.Object()))
	w.create()
	w.Settle()
	w.ExpectReady("False", samplev1.ReasonPodTerminating)
	if events := w.Events(); len(events) > 0 {
		t.Errorf("events are %q", events)
	}
	w.remove("sample", true) // the garbage collector
	w.Settle()
	if pod := w.pod("sample"); pod == nil || !metav1.IsControlledBy(pod, w.Object()) {
		t.Errorf("the Pod is %s", asJSON(pod))
	}
}

func TestADeletedSampleResourceDoesNothing(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Change(func(s *samplev1.SampleResource) { s.Finalizers = []string{"example.com/wait"} })
	w.Do(w.Client.Delete(t.Context(), w.Object()))
	w.Settle()
	if writes := w.Wrote(); len(writes) > 0 {
		t.Errorf("writes for a SampleResource that is being deleted: %v", writes)
	}
	w.Change(func(s *samplev1.SampleResource) { s.Finalizers = nil })
}

func TestNothingFlaps(t *testing.T) {
	for name, happen := range map[string]func(*world){
		"ready":  func(*world) {},
		"failed": func(w *world) { w.report("sample", failed) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.createReady()
			happen(w)
			w.Settle()
			before := w.Object()
			for range 8 {
				w.Pass(time.Second)
				w.ReconcileOnce()
			}
			if diff := cmp.Diff(before, w.Object()); diff != "" {
				t.Errorf("nothing happened, and the SampleResource changed (-before +after):\n%s", diff)
			}
		})
	}
}
