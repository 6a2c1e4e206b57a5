package sampleresource

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
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
	foreign := w.foreign("sample")
	w.run()
	w.create()
	w.Eventually("the foreign Pod is reported", func() bool { return w.HasReason(samplev1.ReasonErrResourceExists) })

	w.remove("sample", true)
	w.Eventually("the name is free and taken", func() bool { pod := w.pod("sample"); return pod != nil && pod.UID != foreign.UID })

	w.report("sample", ready)
	w.Eventually("the Pod is ready", func() bool { return w.HasReason(samplev1.ReasonPodReady) })

	w.Change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.30" })
	w.Eventually("the image is changed", func() bool { return podImage(w.pod("sample")) == "nginx:1.30" })
	w.Eventually("the new image is not ready", func() bool { return w.HasReason(samplev1.ReasonPodStarting) })
	w.report("sample", ready)
	w.Eventually("the new image is ready", func() bool { return w.HasReason(samplev1.ReasonPodReady) })

	uid := w.pod("sample").UID
	w.remove("sample", true)
	w.Eventually("the Pod is back", func() bool { pod := w.pod("sample"); return pod != nil && pod.UID != uid })

	w.report("sample", failed)
	w.Eventually("the failure is counted", func() bool { return w.HasReason(samplev1.ReasonPodFailed) })
	w.Change(func(s *samplev1.SampleResource) { s.Spec.PodImage = "nginx:1.31" })
	w.Eventually("the new image has a new Pod", func() bool { pod := w.pod("sample"); return pod != nil && podImage(pod) == "nginx:1.31" })
	w.report("sample", ready)
	w.Eventually("the Pod is ready again", func() bool { return w.HasReason(samplev1.ReasonPodReady) })
	statuscheck.Verify(t, w.Object())
}

// The manager sends no other requests than the writes of TestTwoWritesUntilReady: it reads from its cache.
func TestManagerReadsFromItsCache(t *testing.T) {
	w := newWorld(t)
	counted := w.run()
	counted.Take()
	w.create()
	w.Eventually("there is a status", func() bool { return len(statuscheck.Problems(w.Object())) == 0 })
	if diff := cmp.Diff(map[string]int{http.MethodPost: 1, http.MethodPut: 1}, counted.Take()); diff != "" {
		t.Errorf("requests for a SampleResource (-want +got):\n%s", diff)
	}
	w.report("sample", ready)
	w.Eventually("it is ready", func() bool { return w.HasReason(samplev1.ReasonPodReady) })
	if diff := cmp.Diff(map[string]int{http.MethodPut: 1}, counted.Take()); diff != "" {
		t.Errorf("requests for a Pod that became ready (-want +got):\n%s", diff)
	}
}
