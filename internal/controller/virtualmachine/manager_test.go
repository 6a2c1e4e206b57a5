package virtualmachine

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// run runs a manager with this controller for the namespace of w, until the test ends.
func (w *fixture) run() *harness.Requests {
	w.Helper()
	add := func(mgr ctrl.Manager, options controller.Options) error { return Add(mgr, options, w.drivers, false) }
	return harness.RunManager(w.T, env.Config(w), w.Client.Scheme(), w.Namespace, add, Cache)
}

func TestManagerFollowsWhatHappens(t *testing.T) {
	w := newFixture(t)
	w.run()
	w.create()
	w.Eventually("it runs", func() bool { return w.HasReason(v1alpha1.ReasonGuestBooting) })
	w.backend.Boot(w.uid())
	w.Eventually("it is ready", func() bool { return w.HasReason(v1alpha1.ReasonGuestReady) })
	w.Change(withAction(v1alpha1.ActionPaused))
	w.Eventually("it is paused", func() bool { return w.HasReason(v1alpha1.ReasonPaused) })
	w.Change(withAction(v1alpha1.ActionStopped))
	w.Eventually("it is stopped", func() bool { return w.HasReason(v1alpha1.ReasonStopped) })
	statuscheck.Verify(t, w.Object())
	w.Delete()
	w.Eventually("it is gone", func() bool { return w.IsGone() && len(w.backend.UIDs()) == 0 })
}

func TestLongManagerHoldsHundreds(t *testing.T) {
	w := newFixture(t)
	w.backend = fake.New(fake.Options{})
	w.Restart()
	counted := w.run()
	counted.Take()
	const many = 300
	harness.Parallel(t, many, func(n int) error {
		vm := newVM()
		vm.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("vm-%d", n)}
		return w.Client.Create(t.Context(), vm)
	})
	all := func() []client.Object {
		var list v1alpha1.VirtualMachineList
		w.Do(w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
		var objects []client.Object
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
		return objects
	}
	w.Eventually("all are ready", func() bool {
		for _, vm := range all() {
			if !meta.IsStatusConditionTrue(vm.(*v1alpha1.VirtualMachine).Status.Conditions, v1alpha1.ConditionReady) {
				return false
			}
		}
		return true
	})
	statuscheck.Verify(t, all()...)
	requests := counted.Take()
	if writes := requests[http.MethodPatch] + requests[http.MethodPut]; writes > 5*many {
		t.Errorf("%d writes for %d machines, want 5 for each at most: %v", writes, many, requests)
	}
	t.Logf("requests for %d machines until they were ready: %v", many, requests)
	w.Do(w.Client.DeleteAllOf(t.Context(), &v1alpha1.VirtualMachine{}, client.InNamespace(w.Namespace)))
	w.Eventually("all are gone", func() bool { return len(all()) == 0 && len(w.backend.UIDs()) == 0 })
}
