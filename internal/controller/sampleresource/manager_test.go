package sampleresource

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func TestLongManagerHoldsAThousand(t *testing.T) {
	w := newWorld(t)
	counted := w.run()
	counted.Take()
	const many = 1000
	harness.Parallel(t, many, func(n int) error {
		sample := newSample()
		sample.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("sample-%d", n)}
		return w.Client.Create(t.Context(), sample)
	})
	w.Eventually("there is a Pod for each", func() bool { return len(w.pods()) == many })
	samples := func() []client.Object {
		var list samplev1.SampleResourceList
		w.Do(w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
		var all []client.Object
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		return all
	}
	w.Eventually("each has a status", func() bool {
		for _, sample := range samples() {
			if len(statuscheck.Problems(sample)) > 0 {
				return false
			}
		}
		return true
	})
	if diff := cmp.Diff(map[string]int{http.MethodPost: many, http.MethodPut: many}, counted.Take()); diff != "" {
		t.Errorf("requests for %d SampleResources (-want +got):\n%s", many, diff)
	}

	// A kubelet reports all of them ready, which is one more write for each.
	pods := w.pods()
	names := make([]string, 0, many)
	for name := range pods {
		names = append(names, name)
	}
	harness.Parallel(t, many, func(n int) error {
		pod := pods[names[n]]
		ready(pod)
		return w.Client.Status().Update(t.Context(), pod)
	})
	w.Eventually("all are ready", func() bool {
		for _, sample := range samples() {
			if !meta.IsStatusConditionTrue(sample.(*samplev1.SampleResource).Status.Conditions, samplev1.ConditionReady) {
				return false
			}
		}
		return true
	})
	if diff := cmp.Diff(map[string]int{http.MethodPut: many}, counted.Take()); diff != "" {
		t.Errorf("requests for %d Pods that became ready (-want +got):\n%s", many, diff)
	}
	statuscheck.Verify(t, samples()...)
}
