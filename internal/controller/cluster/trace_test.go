package cluster

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// silent is an engine that does nothing.
type silent struct{ Engine }

func (silent) Observe(context.Context, Request) (Observation, error) {
	return Observation{}, ErrBusy
}
func (silent) Apply(context.Context, Request) error   { return nil }
func (silent) Delete(context.Context, Request) error  { return nil }
func (silent) Abandon(context.Context, Request) error { return nil }

// Every call of an engine is a step of the trace of its reconcile, with how it went.
func TestCallsOfEnginesAreTraced(t *testing.T) {
	engine := traced(map[v1alpha1.Engine]Engine{"e": silent{}})["e"]
	recorded := tracetest.NewSpanRecorder()
	ctx := tracing.NewContext(t.Context(), tracing.New(recorded, "test"))
	_, err := tracing.Reconciler(Name, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if _, err := engine.Observe(ctx, Request{}); err == nil {
			t.Error("the error of Observe is lost")
		}
		for _, call := range []func(context.Context, Request) error{engine.Apply, engine.Delete, engine.Abandon} {
			if err := call(ctx, Request{}); err != nil {
				t.Error(err)
			}
		}
		return reconcile.Result{}, nil
	})).Reconcile(ctx, reconcile.Request{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, span := range recorded.Ended() {
		got = append(got, span.Name()+" "+span.Status().Code.String())
	}
	want := []string{"Engine.Observe Error", "Engine.Apply Unset", "Engine.Delete Unset", "Engine.Abandon Unset", "Reconcile cluster Unset"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}
