package manager

import (
	"context"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// A whole manager: each reconcile is a trace, and its writes are steps of it; what the informers do is none.
func TestReconcilesAreTraced(t *testing.T) {
	c := newTestClient(t, env.Config(t))
	namespace := env.Namespace(t)
	foo := newFoo(t, c, namespace, "traced")
	writes := newTestController("traced", func(c client.Client) reconcile.Func {
		return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			foo := &samplecontrollerv1alpha1.Foo{}
			if err := c.Get(ctx, request.NamespacedName, foo); err != nil || foo.Status.AvailableReplicas == 7 {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			foo.Status.AvailableReplicas = 7
			return reconcile.Result{}, c.Status().Update(ctx, foo)
		}
	})
	recorded := tracetest.NewSpanRecorder()
	o := newTestOptions(t, namespace)
	o.Tracing = tracing.New(recorded, "test")
	start(t, o, writes)
	deadline := time.Now().Add(soon)
	for {
		spans := recorded.Ended()
		write := slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "PUT" })
		around := slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool {
			return s.Name() == "Reconcile traced" && write >= 0 && s.SpanContext().SpanID() == spans[write].Parent().SpanID()
		})
		if around >= 0 {
			attributes := map[string]string{}
			for _, a := range spans[around].Attributes() {
				attributes[string(a.Key)] = a.Value.String()
			}
			if attributes["keelson.name"] != foo.Name || attributes["keelson.namespace"] != namespace || attributes["keelson.reconcile_id"] == "" {
				t.Errorf("the reconcile has the attributes %v", attributes)
			}
			return
		}
		if slices.ContainsFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "GET" }) {
			t.Fatal("a request of an informer is traced")
		}
		if time.Now().After(deadline) {
			t.Fatalf("no reconcile with its write among %d spans", len(spans))
		}
	}
}
