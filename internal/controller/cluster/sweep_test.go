package cluster_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// lose takes the finalizer off the Cluster and deletes it. It returns the Cluster.
func (w *world) lose() *v1alpha1.Cluster {
	w.Helper()
	w.change(func(c *v1alpha1.Cluster) { c.Finalizers = nil })
	lost := w.get()
	w.delete()
	w.outside.Calls()
	w.events()
	return lost
}

// expectStopped fails the test unless the engine was asked to stop the cluster so often, and told each time.
func (w *world) expectStopped(want int) {
	w.Helper()
	var calls []fake.Call
	for range want {
		calls = append(calls, fake.Call{Method: "StopOrphan", Cluster: w.name})
	}
	if diff := cmp.Diff(calls, w.outside.Calls()); diff != "" {
		w.Errorf("calls of the engine (-want +got):\n%s", diff)
	}
	if told := w.events(); strings.Count(told, "Warning "+v1alpha1.ReasonOrphanStopped) != want {
		w.Errorf("it was stopped %d times, and the events are:\n%s", want, told)
	}
	if names := w.outside.Names(); len(names) != 1 {
		w.Errorf("there are %v; nothing may be removed", names)
	}
}

func TestSweepStopsWhatHasNoObject(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.outside.Calls()
	w.Sweep(t.Context())
	w.expectStopped(0) // it has its object
	lost := w.lose()
	w.Sweep(t.Context())
	w.expectStopped(1)
	w.Sweep(t.Context())
	w.expectStopped(0)

	// Another of its name is made, and nothing is in its way.
	w.do(w.client.Delete(t.Context(), w.secret())) // no garbage collector runs here
	w.do(w.client.Delete(t.Context(), w.kubeconfig()))
	w.create()
	w.answer(well())
	w.settle()
	w.outside.Change(lost.UID, func(*fake.Cluster) *fake.Cluster { return nil })
	w.expectWhole()
	w.outside.Calls()
	w.Sweep(t.Context())
	w.expectStopped(0)
}

// Nothing is stopped unless the API server says that the object is gone, and that it is the one that had it.
func TestSweepStopsNothingInDoubt(t *testing.T) {
	type doubt struct {
		name   string
		behind bool              // the cache still has the object
		funcs  interceptor.Funcs // of the API server
		doing  func(*world, types.UID)
	}
	doubts := []doubt{
		{name: "the cache has the object", behind: true},
		{name: "it was made before the UID of the management cluster was recorded", doing: func(w *world, uid types.UID) {
			w.outside.Change(uid, func(c *fake.Cluster) *fake.Cluster {
				c.ManagementClusterUID = ""
				return c
			})
		}},
		{name: "something is being done with it", doing: func(w *world, uid types.UID) {
			w.outside.Hold(func(fake.Call) bool { return true })
			w.do(w.engine.Apply(w.Context(), cluster.Request{Name: w.name, UID: uid, ManagementClusterUID: managementClusterUIDOf(w.T, w.client)}))
			w.outside.Calls()
		}},
	}
	for name, funcs := range harness.Doubts("clusters") {
		doubts = append(doubts, doubt{name: name, funcs: funcs})
	}
	for _, tt := range doubts {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.made()
			lost := w.lose()
			if tt.doing != nil {
				tt.doing(w, lost.UID)
			}
			cached := interceptor.NewClient(w.client, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if clusters, ok := list.(*v1alpha1.ClusterList); ok && tt.behind {
						clusters.Items = []v1alpha1.Cluster{*lost}
						return nil
					}
					return c.List(ctx, list, opts...)
				},
			})
			cluster.NewReconciler(w.base(cached, interceptor.NewClient(w.client, tt.funcs)), w.Options).Sweep(t.Context())
			w.expectStopped(0)
		})
	}
}

// A cluster without an object is not asked how it is, whoever runs it: of a cluster of the engine rke nothing runs here.
func TestSweepForgetsWhatHasNoObject(t *testing.T) {
	w := newWorld(t)
	w.made()
	first := w.get().UID
	w.Sweep(t.Context())
	if diff := cmp.Diff(map[types.UID]string{first: w.name}, w.prober.Targets()); diff != "" {
		t.Errorf("asked while it has its object (-want +got):\n%s", diff)
	}
	w.lose()
	w.outside.Change(first, func(*fake.Cluster) *fake.Cluster { return nil })
	w.Sweep(t.Context())
	if asked := w.prober.Targets(); len(asked) > 0 {
		t.Errorf("asked without an object: %v", asked)
	}
}

// What could not be stopped is tried again, and told when it is.
func TestSweepTriesAgain(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.lose()
	w.outside.Fail(func(c fake.Call) error { return cluster.ErrBusy })
	w.Sweep(t.Context())
	w.outside.Calls()
	if told := w.events(); told != "" {
		t.Errorf("it was not stopped, and the events are:\n%s", told)
	}
	w.outside.Fail(nil)
	w.Sweep(t.Context())
	w.expectStopped(1)
}

func TestTheManagerSweeps(t *testing.T) {
	t.Parallel()
	config := env.Own(t)
	env.Define(t, config)
	api := harness.Client(t, config, harness.Scheme(t, v1alpha1.AddToScheme))
	outside := fake.NewWorld(clock.RealClock{})
	managementClusterUID := managementClusterUIDOf(t, api)
	outside.Change("lost", func(*fake.Cluster) *fake.Cluster {
		return &fake.Cluster{Name: "lost", ManagementClusterUID: managementClusterUID, Components: []cluster.Component{{Name: cluster.ComponentEtcd, Up: true}}}
	})
	harness.RunManager(t, config, api.Scheme(), metav1.NamespaceDefault, func(mgr ctrl.Manager, options controller.Options) error {
		return cluster.Add(mgr, options, cluster.Options{
			Engines:         map[v1alpha1.Engine]cluster.Engine{v1alpha1.EngineLocal: fake.New(outside)},
			SecretNamespace: metav1.NamespaceDefault, Prober: &prober{},
		})
	}, func(*cache.Options) {})
	harness.Eventually(t, "it is stopped, and an event says so", func() bool {
		var found eventsv1.EventList
		if err := api.List(t.Context(), &found); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found.Items, func(event eventsv1.Event) bool {
			return event.Reason == v1alpha1.ReasonOrphanStopped && event.Regarding.Name == "lost" && event.Regarding.UID == "lost"
		})
	})
}

// managementClusterUIDOf returns what stands for an API.
func managementClusterUIDOf(t *testing.T, api client.Reader) types.UID {
	t.Helper()
	var namespace corev1.Namespace
	if err := api.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.UID
}
