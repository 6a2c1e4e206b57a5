package sampleresource

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/names"
)

// containerName is the container that runs spec.podImage.
const containerName = "sample"

// reasonNodeLost is the status reason of a Pod whose node does not respond.
const reasonNodeLost = "NodeLost"

// podName returns the n-th Pod name of sample. The first is the name of sample; the others
// are for replacements of stuck Pods.
//
// The name is a lock: even with a stale cache, a Pod cannot be created twice.
func podName(sample *samplev1.SampleResource, n int) string {
	if n == 0 {
		return sample.Name
	}
	suffix := fmt.Sprintf("-%d", n)
	return names.Shorten(sample.Name, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// newPod returns the Pod to create for sample.
func newPod(sample *samplev1.SampleResource, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: sample.Namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name":       "sampleresource",
				"app.kubernetes.io/instance":   names.Shorten(sample.Name, validation.LabelValueMaxLength),
				"app.kubernetes.io/managed-by": kube.FieldManager,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(sample, kind)},
		},
		Spec: corev1.PodSpec{
			// The image is not trusted and gets no credentials of the namespace.
			AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:  containerName,
				Image: sample.Spec.PodImage,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
				},
			}},
		},
	}
}

// podImage returns the image of the container of newPod, or "" if the Pod lacks it.
func podImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == containerName {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// hasFailed reports whether the Pod has terminated for good and is not being deleted.
// Kubernetes itself deletes a Pod on an unresponsive node after its toleration, five minutes
// by default, and its Pod garbage collector deletes a Pod on a node that no longer exists.
func hasFailed(pod *corev1.Pod) bool {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return false
	case pod.Status.Reason == reasonNodeLost:
		return true
	}
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown:
		return true
	}
	return false
}

// isReady reports whether the Pod is ready with its current spec.
func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			// Shortly after a change of the image, Ready is still about the old one. Not all
			// kubelets set observedGeneration.
			current := condition.ObservedGeneration == 0 || condition.ObservedGeneration >= pod.Generation
			return current && condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// byAge orders Pods by creation time, oldest first, then by name.
func byAge(a, b corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
