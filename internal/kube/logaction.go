package kube

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LogActions wraps inner and logs one line at level 1 for each reconcile: the action, the resulting Ready condition and the time
// of the next reconcile. The logger of the context names the controller and the object. LogAction and LogReady supply the values.
// The line contains no messages: the condition has them, and controller-runtime logs errors.
func LogActions(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		logger := log.FromContext(ctx).V(1)
		if !logger.Enabled() {
			return inner.Reconcile(ctx, request)
		}
		s := &record{}
		result, err := inner.Reconcile(context.WithValue(ctx, recordKey{}, s), request)
		values := []any{"action", cmp.Or(s.action, "none")}
		if s.ready.Reason != "" {
			values = append(values, "ready", string(s.ready.Status), "reason", s.ready.Reason)
		}
		switch {
		case err != nil:
			values = append(values, "requeue", "with backoff")
		case result.RequeueAfter > 0:
			values = append(values, "requeueAfter", result.RequeueAfter.String())
		}
		logger.Info("Reconciled", values...)
		return result, err
	})
}

// record is the outcome of one reconcile.
type record struct {
	action string
	ready  metav1.Condition
}

type recordKey struct{}

// LogAction sets the action in the log line of this reconcile, see LogActions. The last call wins.
func LogAction[V ~string](ctx context.Context, action V) {
	if s, ok := ctx.Value(recordKey{}).(*record); ok {
		s.action = string(action)
	}
}

// LogReady sets the Ready condition in the log line of this reconcile, see LogActions.
func LogReady(ctx context.Context, ready metav1.Condition) {
	if s, ok := ctx.Value(recordKey{}).(*record); ok {
		s.ready = ready
	}
}
