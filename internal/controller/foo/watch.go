package foo

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// deploymentOwner indexes Deployments by the UID of the Foo that controls them.
	deploymentOwner = "foo.controller"
	// deploymentName indexes Foos by spec.deploymentName.
	deploymentName = "foo.deploymentName"
)

// Indexes are the cache indexes that a Reconciler needs.
var Indexes = []kube.Index{
	{Object: &appsv1.Deployment{}, Field: deploymentOwner, Keys: kube.ByController(kind.GroupKind())},
	{Object: &v1alpha1.Foo{}, Field: deploymentName, Keys: func(foo client.Object) []string {
		return []string{foo.(*v1alpha1.Foo).Spec.DeploymentName}
	}},
}

// watchDeployments enqueues the Foo that controls a Deployment, and the Foos that wait for
// the name of a Deployment to become free.
func watchDeployments(c client.Reader) handler.EventHandler {
	return kube.WatchChildren(kind.GroupKind(), func(ctx context.Context, deployment client.Object) []client.ObjectKey {
		var foos v1alpha1.FooList
		err := c.List(ctx, &foos, client.InNamespace(deployment.GetNamespace()),
			client.MatchingFields{deploymentName: deployment.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot list the Foos that ask for a Deployment", "Deployment", client.ObjectKeyFromObject(deployment))
		}
		keys := make([]client.ObjectKey, 0, len(foos.Items))
		for i := range foos.Items {
			keys = append(keys, client.ObjectKeyFromObject(&foos.Items[i]))
		}
		return keys
	})
}

// Cache configures a manager's cache to keep only the fields of Foos and Deployments that
// this controller reads, which takes a fraction of the memory. It affects all controllers
// of the manager that read Deployments.
func Cache(options *cache.Options) {
	kube.Transform(options, &appsv1.Deployment{}, slimDeployment)
	kube.Transform(options, &v1alpha1.Foo{}, kube.StripManagedFields)
}

// confinedPod and confinedContainer are shared by all slim Deployments for which isConfined is true. They are never modified.
var (
	confinedPod       = corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	confinedContainer = corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)}
)

// slimDeployment returns the fields of a Deployment that this controller reads. Of a
// Deployment without a Foo these are its metadata only.
func slimDeployment(object any) (any, error) {
	full, ok := object.(*appsv1.Deployment)
	if !ok {
		return object, nil
	}
	slim := &appsv1.Deployment{ObjectMeta: kube.Identity(full)}
	if !kube.IsControlled(full, kind.GroupKind()) {
		return slim, nil
	}
	slim.Generation = full.Generation
	slim.Labels = full.Labels
	slim.Spec.Replicas = full.Spec.Replicas
	slim.Spec.Selector = full.Spec.Selector
	slim.Spec.Template.Labels = full.Spec.Template.Labels
	if maps.Equal(slim.Labels, slim.Spec.Template.Labels) {
		// They are equal in newDeployment: share one map.
		slim.Spec.Template.Labels = slim.Labels
	}
	pod, slimPod := &full.Spec.Template.Spec, &slim.Spec.Template.Spec
	slimPod.AutomountServiceAccountToken = pod.AutomountServiceAccountToken
	for i := range pod.Containers {
		slimPod.Containers = append(slimPod.Containers, corev1.Container{Name: pod.Containers[i].Name, Image: pod.Containers[i].Image})
	}
	if container := containerOf(pod); container != nil && isConfined(pod, container) {
		// Nearly all Deployments are confined: share one copy.
		slimPod.SecurityContext, containerOf(slimPod).SecurityContext = &confinedPod, &confinedContainer
	}
	slim.Status = appsv1.DeploymentStatus{
		ObservedGeneration: full.Status.ObservedGeneration,
		Replicas:           full.Status.Replicas,
		UpdatedReplicas:    full.Status.UpdatedReplicas,
		AvailableReplicas:  full.Status.AvailableReplicas,
	}
	for _, condition := range full.Status.Conditions {
		if isReplicaFailure(condition) || isNoProgress(condition) {
			slim.Status.Conditions = append(slim.Status.Conditions, appsv1.DeploymentCondition{
				Type: condition.Type, Status: condition.Status, Reason: condition.Reason, Message: condition.Message,
			})
		}
	}
	return slim, nil
}
