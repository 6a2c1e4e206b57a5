package virtualmachine

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// Each call of a driver has a span with its result in the trace of the reconcile.
func TestCallsOfDriversAreTraced(t *testing.T) {
	driver := instrument(fake.New(fake.Options{}))
	machine := backend.Machine{Identity: backend.Identity{UID: "traced", Namespace: "default", Name: "vm"}, MemoryBytes: 1 << 30, MilliCPU: 1000}
	recorded := tracetest.NewSpanRecorder()
	ctx := tracing.NewContext(t.Context(), tracing.New(recorded, "test"))
	_, err := tracing.Reconciler(Name, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if _, err := driver.Observe(ctx, machine.Identity); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("Observe: %v", err)
		}
		return reconcile.Result{}, errors.Join(driver.Create(ctx, machine), driver.Start(ctx, machine), driver.Pause(ctx, machine.Identity),
			driver.Resume(ctx, machine.Identity), driver.Reconfigure(ctx, machine), driver.Stop(ctx, machine.Identity, 0),
			driver.Delete(ctx, machine.Identity, backend.DeleteOptions{}))
	})).Reconcile(ctx, reconcile.Request{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, span := range recorded.Ended() {
		name := span.Name()
		for _, a := range span.Attributes() {
			if a.Key == "keelson.result" || a.Key == "keelson.driver" {
				name += " " + a.Value.String()
			}
		}
		got = append(got, name)
	}
	want := []string{
		"Driver.Observe fake not_found", "Driver.Create fake", "Driver.Start fake", "Driver.Pause fake", "Driver.Resume fake",
		"Driver.Reconfigure fake", "Driver.Stop fake", "Driver.Delete fake", "Reconcile virtualmachine",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}
