package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LowPriority is the priority in a controller's queue of what can wait until objects
// without children have got them.
const LowPriority = -10

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// WatchChildren wakes the object of that kind that controls a child. When a child
// appears, goes, or changes hands, it wakes also the objects that waiting returns:
// those that want one of its name, and wait for the name to become free.
//
// What children report of themselves gets LowPriority.
func WatchChildren(kind schema.GroupKind, waiting func(context.Context, client.Object) []client.ObjectKey) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			priority := LowPriority
			if e.IsInInitialList {
				priority = handler.LowPriority
			}
			enqueue(q, priority, controllerKey(e.Object, kind)...)
			enqueue(q, priority, waiting(ctx, e.Object)...)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			enqueue(q, LowPriority, controllerKey(e.ObjectNew, kind)...)
			if controllerUID(e.ObjectOld) != controllerUID(e.ObjectNew) {
				enqueue(q, 0, controllerKey(e.ObjectOld, kind)...)
				enqueue(q, 0, waiting(ctx, e.ObjectNew)...)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			enqueue(q, 0, controllerKey(e.Object, kind)...)
			enqueue(q, 0, waiting(ctx, e.Object)...)
		},
	}
}

func enqueue(q queue, priority int, keys ...client.ObjectKey) {
	prioritized, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	for _, key := range keys {
		request := reconcile.Request{NamespacedName: key}
		if ok {
			prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		} else {
			q.Add(request)
		}
	}
}

// controllerKey returns the object of that kind that controls child, if one does.
func controllerKey(child client.Object, kind schema.GroupKind) []client.ObjectKey {
	if ref := controllerOf(child, kind); ref != nil {
		return []client.ObjectKey{{Namespace: child.GetNamespace(), Name: ref.Name}}
	}
	return nil
}
