package sampleresource

import (
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestACacheThatIsBehindMakesNoSecondPod(t *testing.T) {
	t.Run("it does not have the Pod", func(t *testing.T) {
		w := newWorld(t)
		w.create()
		w.freeze()
		w.reconcile()
		for range 3 {
			if got, want := w.reconcile(), (reconcile.Result{RequeueAfter: kube.StalePause}); got != want {
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
		w.clock.SetTime(w.pod("sample").DeletionTimestamp.Add(stuckAfter))
		w.freeze()
		for range 3 {
			w.reconcile()
		}
		if pods := w.pods(); len(pods) != 2 {
			t.Errorf("the Pods are %v", pods)
		}
	})
	t.Run("it does not have the failure of a Pod that is gone", func(t *testing.T) {
		w := newWorld(t)
		w.createReady()
		stale := w.sample()
		w.report("sample", failed)
		w.reconcile()
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
		w.pass(w.reconcile().RequeueAfter)
		w.freeze()
		stale := w.sample()
		live := w.Reconciler
		w.restart()
		w.settle()
		uid := w.pod("sample").UID
		w.Reconciler = live
		for range 3 {
			if _, err := w.Reconcile(t.Context(), stale); err != nil {
				t.Errorf("Reconcile: %v", err)
			}
			w.pass(kube.Holdback)
		}
		if pod := w.pod("sample"); pod == nil || pod.UID != uid {
			t.Error("the new Pod was replaced as well")
		}
		if got := w.sample().Status.Replacements; got != 1 {
			t.Errorf("one failure counts as %d", got)
		}
	})
}

// A failure counts once, whatever becomes of the write that counts it.
func TestAFailureCountsOnce(t *testing.T) {
	lost := errors.New("connection reset")
	for _, moment := range []harness.Moment{harness.Before, harness.After} {
		t.Run("the count is lost "+string(moment)+" it arrives", func(t *testing.T) {
			w := newWorld(t)
			w.createReady()
			uid := w.pod("sample").UID
			w.report("sample", failed)
			faulty, reached := harness.OnWrite(w.client, 0, moment, func() error { return lost })
			w.useClient(faulty)
			if _, err := w.Reconcile(t.Context(), w.sample()); !errors.Is(err, lost) || !reached() {
				t.Fatalf("Reconcile returns %v", err)
			}
			w.restart()
			if pod := w.pod("sample"); pod == nil || pod.UID != uid {
				t.Error("the Pod went before the failure was counted")
			}
			w.settle()
			if status := w.sample().Status; status.Replacements != 1 || status.ConsecutiveFailures != 1 {
				t.Errorf("one failure is counted as %s", asJSON(status))
			}
		})
	}
	t.Run("with a SampleResource that is out of date", func(t *testing.T) {
		w := newWorld(t)
		w.createReady()
		w.report("sample", failed)
		stale := w.sample()
		w.reconcile()
		for range 3 {
			result, err := w.Reconcile(t.Context(), stale.DeepCopy())
			if err != nil || result.RequeueAfter != kube.StalePause {
				t.Errorf("Reconcile returns %v, %v; it is to come back after %v", result, err, kube.StalePause)
			}
		}
		if got := w.sample().Status.Replacements; got != 1 {
			t.Errorf("one failure counts as %d", got)
		}
	})
}

// stories are what happens to a SampleResource whose Pod is ready; failures is how
// often that counts.
var stories = []struct {
	name     string
	happen   func(*world)
	failures int32
	image    string
}{
	{"nothing", func(*world) {}, 0, "nginx:1.29"},
	{"the Pod was deleted", func(w *world) { w.remove("sample", true) }, 0, "nginx:1.29"},
	{"the Pod failed", func(w *world) { w.report("sample", failed) }, 1, "nginx:1.29"},
	{
		"the image was changed",
		func(w *world) { w.change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.30" }) },
		0, "nginx:1.30",
	},
	{
		"the Pod failed and the image was changed",
		func(w *world) {
			w.report("sample", failed)
			w.change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.30" })
		},
		1, "nginx:1.30",
	},
	{
		"there is a Pod too many",
		func(w *world) { w.do(w.client.Create(w.Context(), newPod(w.sample(), "sample-1"))) },
		0, "nginx:1.29",
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
				for step := 0; ; step++ {
					w.createReady()
					story.happen(w)
					faulty, reached := harness.OnWrite(w.client, step, fault.moment, fault.raise)
					w.useClient(faulty)
					func() {
						defer func() {
							if r := recover(); r != nil && r != any(killed{}) {
								panic(r)
							}
						}()
						for range 6 {
							result, _ := w.Reconcile(t.Context(), w.sample())
							w.pass(result.RequeueAfter)
						}
					}()
					w.restart()
					for range 2 { // with the pause after a failure
						w.settle()
						w.pass(w.reconcile().RequeueAfter)
					}
					w.settle()
					pod := w.pod("sample")
					if len(w.pods()) != 1 || pod == nil || podImage(pod) != story.image {
						t.Fatalf("step %d: the Pods are %s", step, asJSON(w.pods()))
					}
					w.report("sample", ready)
					w.settle()
					w.expectReady("True", samplev1.ReasonPodReady)
					if got := w.sample().Status.Replacements; got != story.failures {
						t.Fatalf("step %d: %d replacements", step, got)
					}
					if !reached() {
						return
					}
					w.remove("sample", true)
					w.do(w.client.Delete(t.Context(), w.sample()))
				}
			})
		}
	}
}
