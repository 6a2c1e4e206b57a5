package sampleresource

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// newSample returns a SampleResource as the API server has it.
func newSample(change ...func(*samplev1.SampleResource)) *samplev1.SampleResource {
	sample := &samplev1.SampleResource{
		ObjectMeta: metav1.ObjectMeta{Name: "sample", Namespace: "market", UID: "sample-1", Generation: 2},
		Spec:       samplev1.SampleResourceSpec{PodImage: "nginx:1.29"},
		Status:     samplev1.SampleResourceStatus{ObservedGeneration: 2},
	}
	for _, change := range change {
		change(sample)
	}
	return sample
}

// afterFailures is a SampleResource of which so many Pods in a row failed, the last
// one, with this UID, ago.
func afterFailures(n int32, uid types.UID, ago time.Duration) func(*samplev1.SampleResource) {
	return func(s *samplev1.SampleResource) {
		s.Status.Replacements = 10
		s.Status.ConsecutiveFailures = n
		s.Status.LastFailedPodUID = uid
		s.Status.LastFailureTime = ptr.To(metav1.NewTime(noon.Add(-ago)))
	}
}

// ownedBy returns the n-th Pod of sample, as the API server has it when it is ready.
// Its UID is pod-n.
func ownedBy(sample *samplev1.SampleResource, n int, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(sample, podName(sample, n))
	pod.UID = types.UID(fmt.Sprintf("pod-%d", n))
	pod.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(n-60) * time.Minute))
	pod.Generation = 1
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, change := range change {
		change(pod)
	}
	return pod
}

// see returns an observation of these Pods, each as what it is to sample.
func see(sample *samplev1.SampleResource, pods ...*corev1.Pod) observation {
	var seen observation
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, sample) {
			seen.owned = append(seen.owned, *pod)
		} else if pod.Name == sample.Name {
			seen.other = pod
		}
	}
	for n := 0; seen.other == nil && seen.free == ""; n++ {
		name := podName(sample, n)
		if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == name }) {
			seen.free = name
		}
	}
	slices.SortFunc(seen.owned, byAge)
	return seen
}

func failed(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodFailed
	pod.Status.Conditions = nil
}

func starting(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// deletedAgo makes a Pod one whose grace period ended so long ago.
func deletedAgo(ago time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(-ago))) }
}

func orphaned(pod *corev1.Pod) { pod.OwnerReferences = nil }

// ofEarlierSample makes a Pod that of a SampleResource that had the same name.
func ofEarlierSample(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "sample-0" }

func withImage(image string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = image }
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// asJSON returns value as JSON with indentation.
func asJSON(value any) string { return string(must(json.MarshalIndent(value, "", "  "))) }

// waiting makes the container wait.
func waiting(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: containerName, Image: podImage(pod), State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "it waits"}},
		}}
	}
}

func unscheduled(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
	})
}
