package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Base is what a Reconciler has.
type Base struct {
	// Client reads from a cache, which may be stale, and writes.
	Client client.Client
	// Live reads from the API server, where a stale read could do harm.
	Live   client.Reader
	Status *StatusWriter
	Events *Recorder
	Clock  clock.WithTicker
}

// NewBase returns the Base of the Reconciler of a kind.
func NewBase(kind schema.GroupVersionKind, c client.Client, live client.Reader, recorder events.EventRecorder, clock clock.WithTicker) Base {
	return Base{Client: c, Live: live, Status: NewStatusWriter(kind.Kind, c, clock), Events: NewRecorder(kind, recorder), Clock: clock}
}

// CreateChild creates a child of owner. The error is ErrStale if the name is taken and the cache or the garbage collector will catch up, or
// ErrNotOwned if an object with another owner has it.
func (b Base) CreateChild(ctx context.Context, child client.Object, childKind schema.GroupVersionKind, owner client.Object, kind schema.GroupKind) error {
	err := b.Client.Create(ctx, child, client.FieldOwner(FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = classifyAlreadyExists(ctx, b.Live, childKind, child.GetName(), owner, kind)
	}
	if err == nil {
		b.Status.Created()
	}
	return Named(err, "create", childKind.Kind, child.GetNamespace(), child.GetName())
}

// BaseOf returns the Base of the Reconciler of a kind in a manager. controller is the name of the controller.
func BaseOf(mgr ctrl.Manager, kind schema.GroupVersionKind, controller string) Base {
	return NewBase(kind, mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(controller), clock.RealClock{})
}
