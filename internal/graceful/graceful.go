// Package graceful lets a reconcile that has begun end in its own time when the
// manager stops.
package graceful

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Grace is how long a running reconcile may go on after the manager was told to
// stop. It is shorter than the manager waits for its controllers, so that the
// reconcile learns of the deadline, and can say what it left undone, before the
// process ends.
const Grace = 25 * time.Second

// errGrace is the cause of the cancellation that a reconcile sees in the end.
var errGrace = errors.New("the manager stops, and the time for running reconciles is over")

// Reconciler returns inner with another context: the one that controller-runtime
// hands to a reconcile is cancelled at the very moment the manager is told to stop,
// so that every request of a reconcile under way fails half way through. Here it
// is cancelled Grace later. All else, values included, is as before.
func Reconciler(inner reconcile.Reconciler) reconcile.Reconciler {
	return withGrace(inner, Grace)
}

func withGrace(inner reconcile.Reconciler, grace time.Duration) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		defer cancel(nil)
		finished := make(chan struct{})
		defer close(finished)
		unregister := context.AfterFunc(ctx, func() {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-timer.C:
				cancel(errGrace)
			case <-finished:
			}
		})
		defer unregister()
		return inner.Reconcile(detached, request)
	})
}
