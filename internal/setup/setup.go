// Package setup is how controllers, and what they do at intervals, are added to a manager.
package setup

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/internal/graceful"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// Controller adds a controller with these watches to a manager. Its reconciles are traced and logged, and end before the manager does.
func Controller[T client.Object](mgr ctrl.Manager, name string, options controller.Options, watches *builder.Builder, r reconcile.ObjectReconciler[T]) error {
	inner := graceful.Reconciler(kube.LogActions(reconcile.AsReconciler(mgr.GetClient(), r)))
	if err := watches.Named(name).WithOptions(options).Complete(tracing.Reconciler(name, inner)); err != nil {
		return fmt.Errorf("build controller %s: %w", name, err)
	}
	return nil
}

// Every returns a Runnable that calls do in the leader: at its start, and again an interval after each call has returned.
func Every(interval time.Duration, do func(context.Context)) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, do, interval)
		return nil
	})
}
