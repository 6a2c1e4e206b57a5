package sampleresource

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
)

func TestDecide(t *testing.T) {
	fresh := newSample()
	newImage := func(s *samplev1.SampleResource) { s.Generation, s.Spec.PodImage = 3, "nginx:1.30" }
	pod := func(n int, change ...func(*corev1.Pod)) *corev1.Pod { return ownedBy(fresh, n, change...) }
	for _, test := range []struct {
		name   string
		sample *samplev1.SampleResource
		pods   []*corev1.Pod
		want   plan
	}{
		{
			name: "there is no Pod: create it",
			want: plan{action: create, name: "sample"},
		},
		{
			name: "the Pod runs: nothing to do",
			pods: []*corev1.Pod{pod(0)},
			want: plan{action: keep, pod: pod(0)},
		},
		{
			name: "the Pod waits for its image: that is for the kubelet",
			pods: []*corev1.Pod{pod(0, starting)},
			want: plan{action: keep, pod: pod(0, starting)},
		},
		{
			name:   "the image was changed: change it in place",
			sample: newSample(newImage),
			pods:   []*corev1.Pod{pod(0)},
			want:   plan{action: changeImage, pod: pod(0)},
		},
		{
			name: "somebody changed the image of the Pod: change it back",
			pods: []*corev1.Pod{pod(0, withImage("other"))},
			want: plan{action: changeImage, pod: pod(0, withImage("other"))},
		},
		{
			name: "the Pod is being deleted: wait, but not longer than its node may take",
			pods: []*corev1.Pod{pod(0, deletedAgo(-30*time.Second))},
			want: plan{action: waitForDeletion, pod: pod(0, deletedAgo(-30*time.Second)), again: time.Minute},
		},
		{
			name: "the Pod should have been gone a moment ago: its node may be slow",
			pods: []*corev1.Pod{pod(0, deletedAgo(29*time.Second))},
			want: plan{action: waitForDeletion, pod: pod(0, deletedAgo(29*time.Second)), again: time.Second},
		},
		{
			name: "the Pod should have been gone half a minute ago: its node is lost, another Pod takes over",
			pods: []*corev1.Pod{pod(0, deletedAgo(30*time.Second))},
			want: plan{action: create, name: "sample-1"},
		},
		{
			name: "another Pod has taken over",
			pods: []*corev1.Pod{pod(0, deletedAgo(time.Hour)), pod(1)},
			want: plan{action: keep, pod: pod(1)},
		},
		{
			name: "that one is being deleted: wait for it",
			pods: []*corev1.Pod{pod(0, deletedAgo(time.Hour)), pod(1, deletedAgo(0))},
			want: plan{action: waitForDeletion, pod: pod(1, deletedAgo(0)), again: 30 * time.Second},
		},
		{
			name: "that one is lost as well",
			pods: []*corev1.Pod{pod(0, deletedAgo(time.Hour)), pod(1, deletedAgo(time.Hour))},
			want: plan{action: create, name: "sample-2"},
		},
		{
			name: "the one that was lost has come to its end: its name is free",
			pods: []*corev1.Pod{pod(1, deletedAgo(time.Hour))},
			want: plan{action: create, name: "sample"},
		},
		{
			name: "the Pod has failed: count that before anything is done about it",
			pods: []*corev1.Pod{pod(0, failed)},
			want: plan{action: countFailure, pod: pod(0, failed), due: noon.Add(10 * time.Second), again: 10 * time.Second},
		},
		{
			name: "the Pod came to an end that looks well, but was not to end",
			pods: []*corev1.Pod{pod(0, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
			want: plan{
				action: countFailure, pod: pod(0, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
				due: noon.Add(10 * time.Second), again: 10 * time.Second,
			},
		},
		{
			name: "the node of the Pod is lost: like a failure",
			pods: []*corev1.Pod{pod(0, func(p *corev1.Pod) { p.Status.Reason = reasonNodeLost })},
			want: plan{
				action: countFailure, pod: pod(0, func(p *corev1.Pod) { p.Status.Reason = reasonNodeLost }),
				due: noon.Add(10 * time.Second), again: 10 * time.Second,
			},
		},
		{
			name:   "the fourth Pod in a row has failed: the pause has doubled three times",
			sample: newSample(afterFailures(3, "pod-9", time.Hour)),
			pods:   []*corev1.Pod{pod(0, failed)},
			want:   plan{action: countFailure, pod: pod(0, failed), due: noon.Add(80 * time.Second), again: 80 * time.Second},
		},
		{
			name:   "the failure is counted, the next attempt is not due: keep the Pod for its logs",
			sample: newSample(afterFailures(2, "pod-0", 5*time.Second)),
			pods:   []*corev1.Pod{pod(0, failed)},
			want:   plan{action: pause, pod: pod(0, failed), due: noon.Add(15 * time.Second), again: 15 * time.Second},
		},
		{
			name:   "the next attempt is due",
			sample: newSample(afterFailures(2, "pod-0", 20*time.Second)),
			pods:   []*corev1.Pod{pod(0, failed)},
			want:   plan{action: replace, pod: pod(0, failed), due: noon},
		},
		{
			name:   "somebody deleted the failed Pod: that does not shorten the pause",
			sample: newSample(afterFailures(2, "pod-0", 5*time.Second)),
			want:   plan{action: pause, due: noon.Add(15 * time.Second), again: 15 * time.Second},
		},
		{
			name:   "the failed Pod is deleted and the next attempt is due",
			sample: newSample(afterFailures(2, "pod-0", 21*time.Second)),
			want:   plan{action: create, name: "sample", due: noon.Add(-time.Second)},
		},
		{
			name:   "a new image gets a new chance at once",
			sample: newSample(afterFailures(5, "pod-0", time.Second), newImage),
			pods:   []*corev1.Pod{pod(0, failed)},
			want:   plan{action: replace, pod: pod(0, failed)},
		},
		{
			name:   "a new image gets a new chance, also without a Pod",
			sample: newSample(afterFailures(5, "pod-0", time.Second), newImage),
			want:   plan{action: create, name: "sample"},
		},
		{
			name: "the Pod failed and is being deleted by someone: only wait",
			pods: []*corev1.Pod{pod(0, failed, deletedAgo(0))},
			want: plan{action: waitForDeletion, pod: pod(0, failed, deletedAgo(0)), again: 30 * time.Second},
		},
		{
			name: "there are three Pods: the oldest stays",
			pods: []*corev1.Pod{pod(2), pod(1), pod(0)},
			want: plan{action: keep, pod: pod(0), surplus: []*corev1.Pod{pod(1), pod(2)}},
		},
		{
			name: "a failed Pod is there beside one that runs",
			pods: []*corev1.Pod{pod(0, failed), pod(1)},
			want: plan{action: keep, pod: pod(1), surplus: []*corev1.Pod{pod(0, failed)}},
		},
		{
			name: "two Pods failed: one counts",
			pods: []*corev1.Pod{pod(0, failed), pod(1, failed)},
			want: plan{
				action: countFailure, pod: pod(1, failed), surplus: []*corev1.Pod{pod(0, failed)},
				due: noon.Add(10 * time.Second), again: 10 * time.Second,
			},
		},
		{
			name: "a Pod of another shape has our owner reference",
			pods: []*corev1.Pod{pod(0, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "x" })},
			want: plan{
				action: create, name: "sample-1",
				surplus: []*corev1.Pod{pod(0, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "x" })},
			},
		},
		{
			name: "the image cannot be pulled",
			pods: []*corev1.Pod{pod(0, starting, waiting("ImagePullBackOff"))},
			want: plan{action: keep, pod: pod(0, starting, waiting("ImagePullBackOff"))},
		},
		{
			name: "no node has room",
			pods: []*corev1.Pod{pod(0, starting, unscheduled)},
			want: plan{action: keep, pod: pod(0, starting, unscheduled)},
		},
		{
			name: "the Pod of that name is someone else's",
			pods: []*corev1.Pod{pod(0, orphaned)},
			want: plan{action: blocked},
		},
		{
			name: "the Pod of that name is someone else's, and ours has another",
			pods: []*corev1.Pod{pod(0, orphaned), pod(1)},
			want: plan{action: keep, pod: pod(1)},
		},
		{
			name: "the Pod is of an earlier SampleResource of this name",
			pods: []*corev1.Pod{pod(0, ofEarlierSample)},
			want: plan{action: waitForCollection},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.sample == nil {
				test.sample = fresh
			}
			test.want.at = noon
			if test.want.due.IsZero() {
				test.want.due = noon
			}
			got := decide(test.sample, see(test.sample, test.pods...), noon)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(plan{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decide (-want +got):\n%s", diff)
			}

			// What the cache drops of a Pod must make no difference.
			slim := make([]*corev1.Pod, 0, len(test.pods))
			for _, pod := range test.pods {
				slim = append(slim, must(slimPod(pod.DeepCopy())).(*corev1.Pod))
			}
			thin := decide(test.sample, see(test.sample, slim...), noon)
			if thin.action != got.action || thin.again != got.again || thin.name != got.name || len(thin.surplus) != len(got.surplus) {
				t.Errorf("of slim Pods decide makes another plan: %s, not %s", thin.action, got.action)
			}
			want := summarize(test.sample, observation{}, got, nil)
			if diff := cmp.Diff(want, summarize(test.sample, observation{}, thin, nil)); diff != "" {
				t.Errorf("of slim Pods summarize makes another status (-whole +slim):\n%s", diff)
			}
		})
	}
}
