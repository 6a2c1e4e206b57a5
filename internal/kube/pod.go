package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PodProblem returns why a Pod does not become ready; empty if it only takes its time.
func PodProblem(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if reason := WaitingProblem(&statuses[i]); reason != "" {
				return fmt.Sprintf("Container %q of Pod %q waits: %s, image %q", statuses[i].Name, pod.Name, reason, statuses[i].Image)
			}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("Pod %q is not scheduled: %s", pod.Name, condition.Message)
		}
	}
	return ""
}

// WaitingProblem returns the reason for which a container waits; empty if it does not wait, or only takes its time.
func WaitingProblem(container *corev1.ContainerStatus) string {
	waiting := container.State.Waiting
	if waiting == nil {
		return ""
	}
	switch waiting.Reason {
	case "ContainerCreating", "PodInitializing":
		return ""
	case "ErrImagePull":
		// The kubelet alternates between the two.
		return "ImagePullBackOff"
	}
	return waiting.Reason
}
