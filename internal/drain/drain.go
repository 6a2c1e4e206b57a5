// Package drain empties nodes of a cluster before they are removed.
package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// interval is the interval at which evictions that a PodDisruptionBudget refuses are tried again.
const interval = time.Second

// Check returns an error if with the node and these volumes on it something would be lost that nobody makes again: Pods without a
// controller, and what is in the volumes. The error names them.
func Check(ctx context.Context, client kubernetes.Interface, node string, volumes []corev1.PersistentVolume) error {
	pods, err := evictable(ctx, client, node)
	if err != nil {
		return err
	}
	if problem := losses(pods, volumes); problem != "" {
		return errors.New(problem + "; delete them first")
	}
	return nil
}

// Node has no new Pods scheduled to a node, and evicts those on it, until they have left it or the timeout has
// passed. Pods of DaemonSets stay.
func Node(ctx context.Context, client kubernetes.Interface, node string, timeout time.Duration) error {
	patch := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		pods, err := evictable(ctx, client, node)
		if err != nil {
			last = err
			return false, nil //nolint:nilerr // the next attempt may succeed
		}
		last = nil
		for i := range pods {
			last = errors.Join(last, evict(ctx, client, &pods[i]))
		}
		return len(pods) == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("after %s, Pods are still on the node; it gets no new ones until `kubectl uncordon %s`: %w", timeout, node, errors.Join(last, err))
	}
	return err
}

// evict asks once to evict a Pod that is not about to end. The method of the client would repeat a refused request for 100 seconds, before
// any other Pod is evicted.
func evict(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		Body(eviction).MaxRetries(0).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("evict the Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// evictable returns the Pods on a node that are to leave it.
func evictable(ctx context.Context, client kubernetes.Interface, node string) (pods []corev1.Pod, err error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		if owner := metav1.GetControllerOf(&pod); owner != nil && owner.Kind == "DaemonSet" {
			continue
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// Volumes returns the PersistentVolumes that only this node has.
func Volumes(ctx context.Context, client kubernetes.Interface, node string) (volumes []corev1.PersistentVolume, err error) {
	list, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, volume := range list.Items {
		if volume.Spec.Local != nil && boundTo(volume.Spec.NodeAffinity, node) {
			volumes = append(volumes, volume)
		}
	}
	return volumes, nil
}

func boundTo(affinity *corev1.VolumeNodeAffinity, node string) bool {
	if affinity == nil || affinity.Required == nil {
		return false
	}
	for _, term := range affinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == corev1.LabelHostname && len(e.Values) == 1 && e.Values[0] == node {
				return true
			}
		}
	}
	return false
}

// losses describes what would be lost with a node; "" if nothing.
func losses(pods []corev1.Pod, volumes []corev1.PersistentVolume) string {
	var lost []string
	for i := range pods {
		ended := pods[i].Status.Phase == corev1.PodSucceeded || pods[i].Status.Phase == corev1.PodFailed
		if metav1.GetControllerOf(&pods[i]) == nil && !ended {
			lost = append(lost, "pod/"+pods[i].Name+" of namespace "+pods[i].Namespace)
		}
	}
	var parts []string
	if len(lost) > 0 {
		parts = append(parts, "no controller would replace "+strings.Join(lost, ", "))
	}
	lost = nil
	for i := range volumes {
		if claim := volumes[i].Spec.ClaimRef; claim != nil {
			lost = append(lost, "pvc/"+claim.Name+" of namespace "+claim.Namespace)
		} else {
			lost = append(lost, "pv/"+volumes[i].Name)
		}
	}
	if len(lost) > 0 {
		parts = append(parts, "the data is on the node of "+strings.Join(lost, ", "))
	}
	return strings.Join(parts, "; ")
}
