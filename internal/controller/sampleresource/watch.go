package sampleresource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// podOwner indexes Pods by the UID of the SampleResource that controls them.
const podOwner = "sampleresource.controller"

// Indexes are the cache indexes that a Reconciler needs.
var Indexes = []kube.Index{
	{Object: &corev1.Pod{}, Field: podOwner, Keys: kube.ByController(kind.GroupKind())},
}

// watchPods enqueues the SampleResource that controls a Pod, and the one that waits for the
// name of a Pod to become free.
func watchPods(c client.Reader) handler.EventHandler {
	return kube.WatchChildren(kind.GroupKind(), func(ctx context.Context, pod client.Object) []client.ObjectKey {
		key := client.ObjectKeyFromObject(pod)
		if err := c.Get(ctx, key, &samplev1.SampleResource{}, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		return []client.ObjectKey{key}
	})
}

// Cache configures a manager's cache to keep only the fields of SampleResources and Pods that
// this controller reads, which takes a fraction of the memory. It affects all controllers of
// the manager that read Pods.
func Cache(options *cache.Options) {
	kube.Transform(options, &corev1.Pod{}, slimPod)
	kube.Transform(options, &samplev1.SampleResource{}, kube.StripManagedFields)
}

// slimPod returns the fields of a Pod that this controller reads. Of a Pod without a
// SampleResource these are its metadata only.
func slimPod(object any) (any, error) {
	full, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := &corev1.Pod{ObjectMeta: kube.Identity(full)}
	if !kube.IsControlled(full, kind.GroupKind()) {
		return slim, nil
	}
	slim.Generation = full.Generation
	for i := range full.Spec.Containers {
		container := &full.Spec.Containers[i]
		slim.Spec.Containers = append(slim.Spec.Containers, corev1.Container{Name: container.Name, Image: container.Image})
	}
	slim.Status.Phase = full.Status.Phase
	slim.Status.Reason = full.Status.Reason
	for _, condition := range full.Status.Conditions {
		if condition.Type == corev1.PodReady {
			slim.Status.Conditions = append(slim.Status.Conditions, corev1.PodCondition{
				Type: condition.Type, Status: condition.Status, ObservedGeneration: condition.ObservedGeneration,
			})
		}
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			slim.Status.Conditions = append(slim.Status.Conditions, corev1.PodCondition{
				Type: condition.Type, Status: condition.Status, Message: condition.Message,
			})
		}
	}
	slim.Status.InitContainerStatuses = stuckContainers(full.Status.InitContainerStatuses)
	slim.Status.ContainerStatuses = stuckContainers(full.Status.ContainerStatuses)
	return slim, nil
}

// stuckContainers returns what kube.PodProblem reads of containers that cannot start.
func stuckContainers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var stuck []corev1.ContainerStatus
	for i := range all {
		if reason := kube.WaitingProblem(&all[i]); reason != "" {
			waiting := &corev1.ContainerStateWaiting{Reason: reason}
			stuck = append(stuck, corev1.ContainerStatus{Name: all[i].Name, Image: all[i].Image, State: corev1.ContainerState{Waiting: waiting}})
		}
	}
	return stuck
}
