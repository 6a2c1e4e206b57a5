package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// lostTimeout is how long after its grace period a Pod that is being deleted counts as on a lost node.
	lostTimeout = 30 * time.Second
	// unseenTimeout is how long after a deletion kubelet may not have seen it before the node counts as lost.
	unseenTimeout = 15 * time.Second
)

// isLost reports whether nobody knows if a Pod still runs: Kubernetes has found that its node does not answer, or the Pod should have ended, and
// kubelet does not confirm that. It is only shown. Whether the next run may begin is decided by the end of the Pod, see isOver.
func isLost(pod *corev1.Pod, now time.Time) bool {
	return isUnreachable(pod) || isUnseen(pod, now) || pod.DeletionTimestamp != nil && now.Sub(pod.DeletionTimestamp.Time) > lostTimeout
}

// isUnreachable reports whether the node lifecycle controller of Kubernetes has found that the node of a Pod that was ready does not answer. It sets
// the status of Ready, and nothing else. A kubelet changes ContainersReady too, or has a reason, and corrects Ready when it is back.
func isUnreachable(pod *corev1.Pod) bool {
	ready, containers := conditionOf(pod, corev1.PodReady), conditionOf(pod, corev1.ContainersReady)
	return ready != nil && ready.Status == corev1.ConditionFalse && ready.Reason == "" && containers != nil && containers.Status == corev1.ConditionTrue
}

// isUnseen reports whether kubelet has not seen the deletion of a Pod in time. The deletion is a new generation, which kubelet reports before it
// ends the containers. A kubelet that reports no generations is not asked.
func isUnseen(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp == nil || pod.Status.ObservedGeneration == 0 || pod.Status.ObservedGeneration >= pod.Generation {
		return false
	}
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second // the timestamp is the end of it
	return now.Sub(pod.DeletionTimestamp.Add(-grace)) > unseenTimeout
}

// lostNode says what the node of a Pod does not do that isLost.
func lostNode(pod *corev1.Pod) string {
	if isUnreachable(pod) {
		return fmt.Sprintf("the node %s does not answer", pod.Spec.NodeName)
	}
	return fmt.Sprintf("the node %s does not confirm that the Pod %s has ended", pod.Spec.NodeName, pod.Name)
}
