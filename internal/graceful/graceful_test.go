package graceful

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type key struct{}

func TestReconcileOutlivesTheStop(t *testing.T) {
	tests := []struct {
		name  string
		takes time.Duration // from the stop to the end of the reconcile
		cause error         // what the reconcile sees then
	}{
		{name: "within the grace nothing is noticed", takes: 9 * time.Second},
		{name: "after the grace the context ends", takes: 11 * time.Second, cause: errGrace},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, stop := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				var cause error
				inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					stop()
					<-time.After(tt.takes)
					cause = context.Cause(ctx)
					if got := ctx.Value(key{}); got != "value" {
						t.Errorf("value in the context: got %v, want value", got)
					}
					return reconcile.Result{RequeueAfter: time.Minute}, nil
				})
				got, err := withGrace(inner, 10*time.Second).Reconcile(parent, reconcile.Request{})
				if err != nil || got.RequeueAfter != time.Minute {
					t.Errorf("Reconcile: got %v, %v; want the inner result", got, err)
				}
				if !errors.Is(cause, tt.cause) {
					t.Errorf("cause of the cancellation: got %v, want %v", cause, tt.cause)
				}
			})
		})
	}
}

func TestReconcileWithoutStopLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, stop := context.WithCancel(t.Context())
		inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, ctx.Err()
		})
		if _, err := Reconciler(inner).Reconcile(parent, reconcile.Request{}); err != nil {
			t.Errorf("Reconcile: %v", err)
		}
		// The bubble of synctest fails the test if a goroutine still waits after this.
		stop()
	})
}
