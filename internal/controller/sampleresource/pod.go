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
)

// containerName is the name of the container that runs the image.
const containerName = "sample"

// reasonNodeLost is the reason in the status of a Pod whose node does not answer.
const reasonNodeLost = "NodeLost"

// podName returns the n-th name for a Pod of sample. The first is that of sample; the
// others are for Pods that take over from one that cannot be got rid of.
//
// The name is a lock: however old a cache is, no two Pods of one name can be created.
func podName(sample *samplev1.SampleResource, n int) string {
	if n == 0 {
		return sample.Name
	}
	suffix := fmt.Sprintf("-%d", n)
	return kube.Shorten(sample.Name, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// newPod returns the Pod to create for sample.
func newPod(sample *samplev1.SampleResource, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: sample.Namespace,
			Labels: map[string]string{
				"app.kubernetes.io/name":       "sampleresource",
				"app.kubernetes.io/instance":   kube.Shorten(sample.Name, validation.LabelValueMaxLength),
				"app.kubernetes.io/managed-by": kube.FieldManager,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(sample, kind)},
		},
		Spec: corev1.PodSpec{
			// The image is anybody's; it gets no credentials of the namespace.
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

// podImage returns the image of the container that is ours, or "" if there is none.
func podImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == containerName {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// hasFailed reports whether the Pod does not run, will not run again by itself, and
// nobody has deleted it. A Pod with a node that does not answer is deleted by
// Kubernetes after the time that it tolerates that, five minutes by default; one with a
// node that is gone is deleted by the garbage collector of Pods.
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

// isReady reports whether the Pod is ready with the spec that it has now.
func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			// After a change of the image, Ready is about the old one for a moment. Not
			// all kubelets say which it is about.
			current := condition.ObservedGeneration == 0 || condition.ObservedGeneration >= pod.Generation
			return current && condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// byAge orders Pods: the oldest first, then by name.
func byAge(a, b corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
