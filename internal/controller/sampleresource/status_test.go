package sampleresource

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

func TestSummarize(t *testing.T) {
	fresh := newSample()
	quota := apierrors.NewForbidden(corev1.Resource("pods"), "sample", errors.New("exceeded quota: few"))
	young := apierrors.NewForbidden(corev1.Resource("pods"), "sample",
		errors.New(`error looking up service account market/default: serviceaccount "default" not found`))
	failedAt := ptr.To(metav1.NewTime(noon))
	for _, test := range []struct {
		name   string
		sample *samplev1.SampleResource
		pods   []*corev1.Pod
		actErr error
		want   samplev1.SampleResourceStatus
		ready  metav1.Condition
	}{
		{
			name:  "the Pod is ready",
			pods:  []*corev1.Pod{ownedBy(fresh, 0)},
			want:  samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "True", Reason: "PodReady", Message: `Pod "sample" runs image "nginx:1.29" and is ready`},
		},
		{
			name:   "a Pod that is ready ends the series of failures, and the count goes on",
			sample: newSample(afterFailures(3, "pod-9", time.Hour)),
			pods:   []*corev1.Pod{ownedBy(fresh, 0)},
			want: samplev1.SampleResourceStatus{
				PodName: "sample", Replacements: 10, LastFailedPodUID: "pod-9", LastFailureTime: ptr.To(metav1.NewTime(noon.Add(-time.Hour))),
			},
			ready: metav1.Condition{Status: "True", Reason: "PodReady", Message: `Pod "sample" runs image "nginx:1.29" and is ready`},
		},
		{
			name:  "the Pod is not ready",
			pods:  []*corev1.Pod{ownedBy(fresh, 0, starting)},
			want:  samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "False", Reason: "PodStarting", Message: `Pod "sample" is not ready yet`},
		},
		{
			name: "the image cannot be pulled",
			pods: []*corev1.Pod{ownedBy(fresh, 0, starting, waiting("ErrImagePull"))},
			want: samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "False", Reason: "PodStuck", Message: `Container "sample" of Pod "sample" waits: ImagePullBackOff, image "nginx:1.29". ` +
				"To see its events, run: kubectl describe pod --namespace market sample"},
		},
		{
			name: "no node has room",
			pods: []*corev1.Pod{ownedBy(fresh, 0, starting, unscheduled)},
			want: samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "False", Reason: "PodStuck", Message: `Pod "sample" is not scheduled: 0/1 nodes are available. ` +
				"To see its events, run: kubectl describe pod --namespace market sample"},
		},
		{
			name:  "the Pod was created just now",
			want:  samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "False", Reason: "PodStarting", Message: `Pod "sample" was created and is not ready yet`},
		},
		{
			name:  "the image was changed just now",
			pods:  []*corev1.Pod{ownedBy(fresh, 0, withImage("other"))},
			want:  samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "False", Reason: "PodStarting", Message: `Pod "sample" is restarted with image "nginx:1.29"`},
		},
		{
			name:  "the Pod is being deleted",
			pods:  []*corev1.Pod{ownedBy(fresh, 0, deletedAgo(0))},
			want:  samplev1.SampleResourceStatus{PodName: "sample"},
			ready: metav1.Condition{Status: "False", Reason: "PodTerminating", Message: `Pod "sample" is being deleted; a new one is created afterwards`},
		},
		{
			name:  "the Pod of an earlier SampleResource is in the way for a moment",
			pods:  []*corev1.Pod{ownedBy(fresh, 0, ofEarlierSample)},
			ready: metav1.Condition{Status: "False", Reason: "PodTerminating", Message: `Pod "sample" of an earlier SampleResource with this name is about to be deleted; a new one is created afterwards`},
		},
		{
			name: "the Pod failed",
			pods: []*corev1.Pod{ownedBy(fresh, 0, failed)},
			want: samplev1.SampleResourceStatus{
				PodName: "sample", Replacements: 1, ConsecutiveFailures: 1, LastFailedPodUID: "pod-0", LastFailureTime: failedAt,
			},
			ready: metav1.Condition{Status: "False", Reason: "PodFailed", Message: "The Pod failed or was lost with its node. The next attempt is at 2026-03-04T12:00:10Z; see the logs and the events of the Pod for the cause"},
		},
		{
			name:   "the Pod failed and is counted",
			sample: newSample(afterFailures(1, "pod-0", 0)),
			pods:   []*corev1.Pod{ownedBy(fresh, 0, failed)},
			want: samplev1.SampleResourceStatus{
				PodName: "sample", Replacements: 10, ConsecutiveFailures: 1, LastFailedPodUID: "pod-0", LastFailureTime: failedAt,
			},
			ready: metav1.Condition{Status: "False", Reason: "PodFailed", Message: "The Pod failed or was lost with its node. The next attempt is at 2026-03-04T12:00:10Z; see the logs and the events of the Pod for the cause"},
		},
		{
			name:   "the Pod failed with the image before",
			sample: newSample(afterFailures(4, "pod-0", 0), func(s *samplev1.SampleResource) { s.Generation = 3 }),
			pods:   []*corev1.Pod{ownedBy(fresh, 0, failed)},
			want: samplev1.SampleResourceStatus{
				PodName: "sample", Replacements: 10, LastFailedPodUID: "pod-0", LastFailureTime: failedAt,
			},
			ready: metav1.Condition{Status: "False", Reason: "PodFailed", Message: `Pod "sample" failed or was lost with its node, and is being replaced`},
		},
		{
			name:  "the Pod of that name is someone else's",
			pods:  []*corev1.Pod{ownedBy(fresh, 0, orphaned)},
			ready: metav1.Condition{Status: "False", Reason: "ErrResourceExists", Message: `Pod "sample" exists and does not belong to this SampleResource. Delete that Pod, or create a SampleResource with another name`},
		},
		{
			name:   "the Pod turned out to be someone else's",
			actErr: fmt.Errorf("create: %w", kube.ErrNotOwned),
			ready:  metav1.Condition{Status: "False", Reason: "ErrResourceExists", Message: `Pod "sample" exists and does not belong to this SampleResource. Delete that Pod, or create a SampleResource with another name`},
		},
		{
			name:   "a quota refused the Pod",
			actErr: fmt.Errorf("create: %w", quota),
			ready:  metav1.Condition{Status: "False", Reason: "PodRejected", Message: `The API rejected Pod "sample": pods "sample" is forbidden: exceeded quota: few. Change the SampleResource, or the policy or quota that rejected it`},
		},
		{
			name:   "the namespace is so new that it lacks its ServiceAccount, which is nobody's mistake",
			actErr: fmt.Errorf("create: %w", young),
			ready:  metav1.Condition{Status: "False", Reason: "PodWriteFailed", Message: `Pod "sample" could not be written, the write is retried: pods "sample" is forbidden: error looking up service account market/default: serviceaccount "default" not found`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.sample == nil {
				test.sample = fresh
			}
			generation := test.sample.Generation
			test.ready.Type, test.ready.ObservedGeneration = "Ready", generation
			test.ready.LastTransitionTime = metav1.NewTime(noon)
			test.want.ObservedGeneration = generation
			test.want.Conditions = []metav1.Condition{test.ready}
			seen := see(test.sample, test.pods...)
			got := summarize(test.sample, seen, decide(test.sample, seen, noon), test.actErr)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("summarize (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsUrgent(t *testing.T) {
	ready := func(status metav1.ConditionStatus, reason, message string, generation int64) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: message, ObservedGeneration: generation}
	}
	starting := ready("False", "PodStarting", "a", 1)
	for _, test := range []struct {
		name    string
		was, is metav1.Condition
		want    bool
	}{
		{"a new Pod starts", metav1.Condition{}, starting, false},
		{"it is ready", starting, ready("True", "PodReady", "a", 1), true},
		{"it is ready with the new image", ready("True", "PodReady", "a", 1), ready("True", "PodReady", "b", 2), true},
		{"it is being deleted", ready("True", "PodReady", "a", 1), ready("False", "PodTerminating", "a", 1), false},
		{"it failed", starting, ready("False", "PodFailed", "a", 1), true},
		{"the next one failed", ready("False", "PodFailed", "at 5", 1), ready("False", "PodFailed", "at 6", 1), true},
		{"it failed and nothing new is known", ready("False", "PodFailed", "at 5", 1), ready("False", "PodFailed", "at 5", 1), false},
		{"its Pod is someone else's", starting, ready("False", "ErrResourceExists", "a", 1), true},
		{"the API refuses it", starting, ready("False", "PodRejected", "a", 1), true},
		{"the API server has a problem, perhaps a short one", starting, ready("False", "PodWriteFailed", "a", 1), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := isUrgent(test.was, test.is); got != test.want {
				t.Errorf("isUrgent = %t", got)
			}
		})
	}
}
