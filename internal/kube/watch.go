package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LowPriority is the priority in a controller's queue for work that can wait until every object
// has its children.
const LowPriority = -10

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// WatchChildren enqueues the controller of a child, if it is of that kind. When a child is
// created, is deleted or gets another controller, it also enqueues the objects that waiting
// returns: those that wait for the child's name to become free.
//
// Updates of children get LowPriority.
func WatchChildren(kind schema.GroupKind, waiting func(context.Context, client.Object) []client.ObjectKey) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			priority := LowPriority
			if e.IsInInitialList {
				priority = handler.LowPriority
			}
			Enqueue(q, priority, controllerKey(e.Object, kind)...)
			Enqueue(q, priority, waiting(ctx, e.Object)...)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			Enqueue(q, LowPriority, controllerKey(e.ObjectNew, kind)...)
			if controllerUID(e.ObjectOld) != controllerUID(e.ObjectNew) {
				Enqueue(q, 0, controllerKey(e.ObjectOld, kind)...)
				Enqueue(q, 0, waiting(ctx, e.ObjectNew)...)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			Enqueue(q, 0, controllerKey(e.Object, kind)...)
			Enqueue(q, 0, waiting(ctx, e.Object)...)
		},
	}
}

// Enqueue adds objects to the queue of a controller in one call.
func Enqueue(q workqueue.TypedRateLimitingInterface[reconcile.Request], priority int, keys ...client.ObjectKey) {
	if len(keys) == 0 {
		return
	}
	requests := make([]reconcile.Request, 0, len(keys))
	for _, key := range keys {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	if prioritized, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, requests...)
		return
	}
	for _, request := range requests {
		q.Add(request)
	}
}

// controllerKey returns the object of that kind that controls child, if one does.
func controllerKey(child client.Object, kind schema.GroupKind) []client.ObjectKey {
	if ref := controllerOf(child, kind); ref != nil {
		return []client.ObjectKey{{Namespace: child.GetNamespace(), Name: ref.Name}}
	}
	return nil
}

// WatchFailed is the watch error handler of caches. It ignores errors while the manager stops.
func WatchFailed(ctx context.Context, r *toolscache.Reflector, err error) {
	if ctx.Err() == nil {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}
