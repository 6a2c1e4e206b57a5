package virtualmachine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

func TestDiskPolicy(t *testing.T) {
	for policy, want := range map[v1alpha1.DiskPolicy]int{v1alpha1.DiskDelete: 0, v1alpha1.DiskRetain: 1} {
		t.Run(string(policy), func(t *testing.T) {
			w := newFixture(t)
			w.createReady(func(vm *v1alpha1.VirtualMachine) { vm.Spec.DiskPolicy = policy })
			w.Delete()
			w.reconcileUntilStable()
			if !w.IsGone() || len(w.backend.Kept()) != want {
				t.Errorf("gone: %t, disks that were kept: %d, want %d", w.IsGone(), len(w.backend.Kept()), want)
			}
		})
	}
}

func TestOrphansAreDeleted(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	cluster, err := w.cluster.UID(t.Context())
	w.Do(err)
	orphan := backend.Machine{Identity: backend.Identity{UID: "gone", Namespace: w.Namespace, Name: "gone", Cluster: cluster}}
	earlier := backend.Machine{Identity: backend.Identity{UID: "earlier", Namespace: w.Namespace, Name: "vm", Cluster: cluster}}
	foreign := backend.Machine{Identity: backend.Identity{UID: "foreign", Namespace: w.Namespace, Name: "gone", Cluster: "other"}}
	for _, machine := range []backend.Machine{orphan, earlier, foreign} {
		w.Do(w.backend.Create(t.Context(), machine))
	}
	w.collectOrphans(t.Context())
	got := fmt.Sprint(w.backend.UIDs())
	if !strings.Contains(got, "foreign") || !strings.Contains(got, string(w.uid())) || len(w.backend.UIDs()) != 2 {
		t.Errorf("after the collection there are %s", got)
	}
	if kept := w.backend.Kept(); len(kept) != 2 {
		t.Errorf("only the disks %v of the orphans were kept", kept)
	}
	if diff := cmp.Diff([]string{"Warning OrphanDeleted", "Warning OrphanDeleted"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	statuscheck.Verify(t, w.Object())
}

// No server is deleted unless the API server confirms that the object is gone and that it is the same cluster.
func TestOrphansAreKeptInDoubt(t *testing.T) {
	for name, funcs := range harness.Doubts("virtualmachines") {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			cluster, err := w.cluster.UID(t.Context()) // as of the creation of the server
			w.Do(err)
			w.Do(w.backend.Create(t.Context(), backend.Machine{
				Identity: backend.Identity{UID: "gone", Namespace: w.Namespace, Name: "gone", Cluster: cluster},
			}))
			w.Live = interceptor.NewClient(w.Client, funcs)
			w.collectOrphans(t.Context())
			if there, told := w.backend.UIDs(), w.events(); len(there) != 1 || len(told) != 0 {
				t.Errorf("there are the servers %v, want one; events: %v", there, told)
			}
			w.Live = w.Client
			w.collectOrphans(t.Context())
			if there := w.backend.UIDs(); len(there) != 0 {
				t.Errorf("the servers %v are left after the doubt was resolved", there)
			}
		})
	}
}
