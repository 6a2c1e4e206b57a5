package foo

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// deploymentOwner finds Deployments by the UID of the Foo that controls them.
	deploymentOwner = "foo.controller"
	// deploymentName finds Foos by the Deployment that they ask for.
	deploymentName = "foo.deploymentName"
)

// Indexes are the indexes that a Reconciler reads by.
var Indexes = []kube.Index{
	{Object: &appsv1.Deployment{}, Field: deploymentOwner, Keys: kube.ByController(kind.GroupKind())},
	{Object: &v1alpha1.Foo{}, Field: deploymentName, Keys: func(foo client.Object) []string {
		return []string{foo.(*v1alpha1.Foo).Spec.DeploymentName}
	}},
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watchDeployments wakes the Foo that controls a Deployment, and when a Deployment
// appears, goes, or changes hands also the Foos that ask for one of its name: they
// wait for the name to become free.
func watchDeployments(c client.Reader) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			// What Deployments report of themselves comes after Foos that have none yet.
			priority := kube.LowPriority
			if e.IsInInitialList {
				priority = handler.LowPriority
			}
			enqueue(q, priority, append(waiting(ctx, c, e.Object), controllerOf(e.Object)...))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := controllerOf(e.ObjectOld), controllerOf(e.ObjectNew)
			enqueue(q, kube.LowPriority, after)
			if kube.ControllerUID(e.ObjectOld) != kube.ControllerUID(e.ObjectNew) {
				enqueue(q, 0, append(waiting(ctx, c, e.ObjectNew), before...))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			enqueue(q, 0, append(waiting(ctx, c, e.Object), controllerOf(e.Object)...))
		},
	}
}

func enqueue(q queue, priority int, requests []reconcile.Request) {
	if prioritized, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, requests...)
		return
	}
	for _, request := range requests {
		q.Add(request)
	}
}

func controllerOf(deployment client.Object) []reconcile.Request {
	name := kube.ControllerName(deployment, kind.GroupKind())
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: deployment.GetNamespace(), Name: name}}}
}

// waiting returns the Foos that ask for a Deployment of that name.
func waiting(ctx context.Context, c client.Reader, deployment client.Object) []reconcile.Request {
	var foos v1alpha1.FooList
	err := c.List(ctx, &foos, client.InNamespace(deployment.GetNamespace()),
		client.MatchingFields{deploymentName: deployment.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the Foos that ask for a Deployment", "Deployment", client.ObjectKeyFromObject(deployment))
		return nil
	}
	requests := make([]reconcile.Request, 0, len(foos.Items)+1)
	for i := range foos.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&foos.Items[i])})
	}
	return requests
}

// Cache makes a manager's cache keep of Foos and Deployments only what this
// controller reads: a fraction of the memory. Other controllers of the manager see
// Deployments so, too.
func Cache(options *cache.Options) {
	kube.Transform(options, &appsv1.Deployment{}, slimDeployment)
	kube.Transform(options, &v1alpha1.Foo{}, slimFoo)
}

// slimDeployment returns what this controller reads of a Deployment. Of one that no
// Foo controls that is the name, and whose it is.
func slimDeployment(object any) (any, error) {
	full, ok := object.(*appsv1.Deployment)
	if !ok {
		return object, nil
	}
	slim := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:              full.Name,
		Namespace:         full.Namespace,
		UID:               full.UID,
		ResourceVersion:   full.ResourceVersion,
		DeletionTimestamp: full.DeletionTimestamp,
		OwnerReferences:   full.OwnerReferences,
	}}
	if controllerOf(full) == nil {
		return slim, nil
	}
	slim.Generation = full.Generation
	slim.Labels = full.Labels
	slim.Spec.Replicas = full.Spec.Replicas
	slim.Spec.Selector = full.Spec.Selector
	slim.Spec.Template.Labels = full.Spec.Template.Labels
	for i := range full.Spec.Template.Spec.Containers {
		container := &full.Spec.Template.Spec.Containers[i]
		slim.Spec.Template.Spec.Containers = append(slim.Spec.Template.Spec.Containers,
			corev1.Container{Name: container.Name, Image: container.Image})
	}
	slim.Status = appsv1.DeploymentStatus{
		ObservedGeneration: full.Status.ObservedGeneration,
		Replicas:           full.Status.Replicas,
		UpdatedReplicas:    full.Status.UpdatedReplicas,
		AvailableReplicas:  full.Status.AvailableReplicas,
	}
	return slim, nil
}

// slimFoo drops what only others need: kubectl's copy of the Foo, and who wrote what.
func slimFoo(object any) (any, error) {
	foo, ok := object.(*v1alpha1.Foo)
	if !ok {
		return object, nil
	}
	foo.ManagedFields = nil
	delete(foo.Annotations, corev1.LastAppliedConfigAnnotation)
	return foo, nil
}
