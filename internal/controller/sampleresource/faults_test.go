package sampleresource

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestACacheThatIsBehindMakesNoSecondPod(t *testing.T) {
	t.Run("it does not have the Pod", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.Freeze()
		w.ReconcileOnce()
		for range 3 {
			if got, want := w.ReconcileOnce(), (reconcile.Result{RequeueAfter: kube.StalePause}); got != want {
				t.Errorf("Reconcile returns %v, not %v", got, want)
			}
		}
		if pods := w.pods(); len(pods) != 1 {
			t.Errorf("the Pods are %v", pods)
		}
	})
	t.Run("it does not have the Pod that took over", func(t *testing.T) {
		w := newWorld(t)
		w.createReady()
		w.schedule("sample")
		w.remove("sample", false)
		w.Clock.SetTime(w.pod("sample").DeletionTimestamp.Add(stuckAfter))
		w.Freeze()
		for range 3 {
			w.ReconcileOnce()
		}
		if pods := w.pods(); len(pods) != 2 {
			t.Errorf("the Pods are %v", pods)
		}
	})
	t.Run("it does not have the failure of a Pod that is gone", func(t *testing.T) {
		w := newWorld(t)
		w.createReady()
		stale := w.Object()
		w.report("sample", failed)
		w.ReconcileOnce()
		w.remove("sample", true)
		result, err := w.Reconcile(t.Context(), stale)
		if err != nil || result.RequeueAfter <= 0 {
			t.Errorf("Reconcile returns %v, %v; it is to look again", result, err)
		}
		if pods := w.pods(); len(pods) != 0 {
			t.Errorf("the Pods are %v", pods)
		}
	})
	t.Run("it has the failed Pod that was replaced", func(t *testing.T) {
		w := newWorld(t)
		w.createReady()
		w.report("sample", failed)
		w.Pass(w.ReconcileOnce().RequeueAfter)
		w.Freeze()
		stale := w.Object()
		live := w.Reconciler
		w.Restart()
		w.Settle()
		uid := w.pod("sample").UID
		w.Reconciler = live
		for range 3 {
			if _, err := w.Reconcile(t.Context(), stale); err != nil {
				t.Errorf("Reconcile: %v", err)
			}
			w.Pass(kube.Holdback)
		}
		if pod := w.pod("sample"); pod == nil || pod.UID != uid {
			t.Error("the new Pod was replaced as well")
		}
		if got := w.Object().Status.Replacements; got != 1 {
			t.Errorf("one failure counts as %d", got)
		}
	})
}

// A failure counts once, also for a SampleResource that is out of date.
func TestAFailureCountsOnce(t *testing.T) {
	w := newWorld(t)
	w.createReady()
	w.report("sample", failed)
	stale := w.Object()
	w.ReconcileOnce()
	for range 3 {
		result, err := w.Reconcile(t.Context(), stale.DeepCopy())
		if err != nil || result.RequeueAfter != kube.StalePause {
			t.Errorf("Reconcile returns %v, %v; it is to come back after %v", result, err, kube.StalePause)
		}
	}
	if got := w.Object().Status.Replacements; got != 1 {
		t.Errorf("one failure counts as %d", got)
	}
}

// TestStories tells what happens to a SampleResource whose Pod is ready. In the end it has one Pod, and each
// failure has counted once.
func TestStories(t *testing.T) {
	fail := func(w *world) { w.report("sample", failed) }
	changeImage := func(w *world) { w.Change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.30" }) }
	table := stories.Table[*world]{New: startWorld, Steps: 6, Always: (*world).expectOnePod, Finish: func(w *world) {
		for range 2 { // with the pause after a failure
			w.Settle()
			w.Pass(w.ReconcileOnce().RequeueAfter)
		}
		w.Settle()
	}}
	for _, story := range []struct {
		name     string
		happen   func(*world)
		failures int32
		image    string
	}{
		{"nothing", func(*world) {}, 0, "nginx:1.29"},
		{"the Pod was deleted", func(w *world) { w.remove("sample", true) }, 0, "nginx:1.29"},
		{"the Pod failed", fail, 1, "nginx:1.29"},
		{"the image was changed", changeImage, 0, "nginx:1.30"},
		{"the Pod failed and the image was changed", func(w *world) { fail(w); changeImage(w) }, 1, "nginx:1.30"},
		{"there is a Pod too many", func(w *world) { w.Do(w.Client.Create(w.Context(), newPod(w.Object(), "sample-1"))) }, 0, "nginx:1.29"},
	} {
		table.Stories = append(table.Stories, stories.Story[*world]{
			Name: story.name, Before: (*world).createReady, Happen: story.happen,
			End: func(w *world) {
				pod := w.pod("sample")
				if len(w.pods()) != 1 || pod == nil || podImage(pod) != story.image {
					w.Fatalf("the Pods are %s", asJSON(w.pods()))
				}
				w.report("sample", ready)
				w.Settle()
				w.ExpectReady("True", samplev1.ReasonPodReady)
				if got := w.Object().Status.Replacements; got != story.failures {
					w.Errorf("%d replacements", got)
				}
			},
		})
	}
	table.Run(t)
}

// expectOnePod fails the test if there are more Pods than one and the one too many of a story.
func (w *world) expectOnePod() {
	w.Helper()
	for name := range w.pods() {
		if name != "sample" && name != "sample-1" {
			w.Errorf("there is a Pod %s", name)
		}
	}
}
