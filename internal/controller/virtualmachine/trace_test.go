package virtualmachine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// Each call of a driver has a span with its result in the trace of the reconcile.
func TestCallsOfDriversAreTraced(t *testing.T) {
	w := newFixture(t)
	w.create()
	recorded := tracetest.NewSpanRecorder()
	ctx := tracing.NewContext(t.Context(), tracing.New(recorded, "test"))
	traced := tracing.Reconciler(Name, reconcile.AsReconciler(w.Client, w.Reconciler))
	settle := func() {
		for range 4 {
			if _, err := traced.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: "vm"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle()
	for _, next := range []change{
		withAction(v1alpha1.ActionPaused), withAction(v1alpha1.ActionActive), withAction(v1alpha1.ActionAsleep), withAction(v1alpha1.ActionStopped),
		func(vm *v1alpha1.VirtualMachine) { vm.Spec.CPUModel = "other" },
	} {
		w.Change(next)
		settle()
	}
	w.Delete()
	settle()
	var got []string
	for _, span := range recorded.Ended() {
		name := span.Name()
		for _, a := range span.Attributes() {
			if a.Key == "keelson.result" || a.Key == "keelson.driver" {
				name += " " + a.Value.String()
			}
		}
		if strings.HasPrefix(name, "Driver.") && !slices.Contains(got, name) {
			got = append(got, name)
		}
	}
	want := []string{
		"Driver.Observe fake not_found", "Driver.Create fake", "Driver.Observe fake", "Driver.Start fake", "Driver.Pause fake",
		"Driver.Resume fake", "Driver.Sleep fake", "Driver.Stop fake", "Driver.Reconfigure fake", "Driver.Delete fake",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}
