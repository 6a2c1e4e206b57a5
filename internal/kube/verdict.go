package kube

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LogVerdicts returns inner with one line in the log, at level 1, for each reconcile: what was decided about the object, its
// condition Ready after it, and when it looks again. The logger of the context names the controller and the object. What a line
// has comes from Decided and Summarized. Messages are not in it: they are in the condition, and errors in a line of their own.
func LogVerdicts(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		logger := log.FromContext(ctx).V(1)
		if !logger.Enabled() {
			return inner.Reconcile(ctx, request)
		}
		s := &story{}
		result, err := inner.Reconcile(context.WithValue(ctx, storyKey{}, s), request)
		words := []any{"verdict", cmp.Or(s.verdict, "none")}
		if s.ready.Reason != "" {
			words = append(words, "ready", string(s.ready.Status), "reason", s.ready.Reason)
		}
		switch {
		case err != nil:
			words = append(words, "requeue", "with backoff")
		case result.RequeueAfter > 0:
			words = append(words, "requeueAfter", result.RequeueAfter.String())
		}
		logger.Info("Reconciled", words...)
		return result, err
	})
}

// story is what happened in a reconcile.
type story struct {
	verdict string
	ready   metav1.Condition
}

type storyKey struct{}

// Decided tells the log what a reconcile has decided to do; see LogVerdicts. The last one counts.
func Decided[V ~string](ctx context.Context, verdict V) {
	if s, ok := ctx.Value(storyKey{}).(*story); ok {
		s.verdict = string(verdict)
	}
}

// Summarized tells the log the condition Ready that a reconcile has summed up; see LogVerdicts.
func Summarized(ctx context.Context, ready metav1.Condition) {
	if s, ok := ctx.Value(storyKey{}).(*story); ok {
		s.ready = ready
	}
}
