package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// stories are what happens to a Cluster while everything goes wrong.
var stories = []struct {
	name   string
	before func(*world)
	happen func(*world)
	gone   bool
}{
	{"it is created", func(*world) {}, func(w *world) { w.create() }, false},
	{"it is created as the original stored it", func(*world) {}, func(w *world) {
		w.create(func(c *v1alpha1.Cluster) {
			c.Spec.LegacyConfigPath, c.Finalizers = "/a.yml", []string{v1alpha1.LegacyFinalizer}
		})
	}, false},
	{"it is upgraded", func(w *world) { w.create() }, func(w *world) {
		w.change(func(c *v1alpha1.Cluster) { c.Spec.Version = "v1.37.0" })
	}, false},
	{"the Secret and the Kubeconfig are deleted", func(w *world) { w.create() }, func(w *world) {
		w.do(w.client.Delete(w.Context(), w.secret()))
		w.do(w.client.Delete(w.Context(), w.kubeconfig()))
	}, false},
	{"a user is added, and one is removed", func(w *world) {
		w.create(users("alice"))
		w.answer(well())
		w.settle()
		w.issue(map[string]string{"alice": "a"})
	}, func(w *world) {
		w.setIssued(map[string]string{"bob": "b"})
		w.change(users("bob"))
	}, false},
	{"a snapshot is due, and one is not kept", func(w *world) {
		w.cleanUpSnapshots(w.Context())
		w.create(func(c *v1alpha1.Cluster) {
			c.Spec.Snapshots = &v1alpha1.SnapshotSchedule{Schedule: "@every 30m", Keep: ptr.To[int32](1)}
		})
		w.answer(well())
		w.settle()
		w.pass(30 * time.Minute)
		w.settle()
		w.takeSnapshots()
		w.pass(30 * time.Minute)
		w.settle()
		w.takeSnapshots()
	}, func(w *world) { w.pass(30 * time.Minute) }, false},
	{"it is restored, and its state before is kept", func(w *world) {
		w.cleanUpSnapshots(w.Context())
		w.create()
		w.answer(well())
		w.settle()
		w.snapshot(w.name+"-a", w.name)
	}, func(w *world) { w.change(restoring(w.name+"-a", "1", true)) }, false},
	{"it is deleted", func(w *world) { w.create() }, func(w *world) { w.delete() }, true},
	{"it expires", func(w *world) {
		w.create(func(c *v1alpha1.Cluster) { c.Spec.ExpiresAfter = &metav1.Duration{Duration: time.Hour} })
		w.settle()
		w.pass(time.Hour)
	}, func(w *world) { w.pass(v1alpha1.ExpiryNotice) }, true},
	{"it is deleted before anybody saw it", func(*world) {}, func(w *world) {
		w.create(func(c *v1alpha1.Cluster) { c.Finalizers = []string{v1alpha1.LegacyFinalizer} })
		w.delete()
	}, true},
}

// Whatever write or call of the engine is the last one of a process, or fails: the next process ends where an
// undisturbed one does.
func TestLongAFaultAtAnyStep(t *testing.T) {
	type killed struct{}
	lost := func() error { return errors.New("connection reset") }
	kill := func() error { panic(killed{}) }
	for _, fault := range []struct {
		name string
		// inject arranges the fault for a step, and returns whether it was reached.
		inject func(w *world, step int) (reached func() bool)
	}{
		// A process that is killed before a write leaves what one leaves that is killed after the write or call before it.
		{"killed after a write", onWrite(harness.After, kill)},
		{"a write is lost", onWrite(harness.Before, lost)},
		{"the answer to a write is lost", onWrite(harness.After, lost)},
		{"killed before a call of the engine", onCall(kill)},
		{"a call of the engine fails", onCall(lost)},
	} {
		for _, story := range stories {
			t.Run(fault.name+", "+story.name, func(t *testing.T) {
				w := newWorld(t)
				for step := 0; ; step++ {
					if step > 50 {
						t.Fatal("there is no end of steps")
					}
					story.before(w)
					w.settle()
					story.happen(w)
					reached := fault.inject(w, step)
					for range 6 {
						func() {
							defer func() {
								if r := recover(); r != nil && r != any(killed{}) {
									panic(r)
								}
							}()
							if c := w.get(); c != nil {
								w.answer(well())
								result, _ := w.Reconcile(t.Context(), c)
								w.pass(min(result.RequeueAfter, time.Second))
								w.takePrevious()
							}
						}()
					}
					w.outside.Fail(nil)
					w.restart()
					for range 3 { // failures have their pauses
						w.settle()
						w.pass(11 * time.Second)
						w.takePrevious()
					}
					if c := w.get(); c != nil {
						w.answer(well())
						w.settle()
					}
					if story.gone {
						w.expectNothing()
					} else {
						w.expectWhole()
						w.expectScheduled()
						w.expectRestored()
						w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
						w.delete() // once more from the start
						w.settle()
						w.expectNothing()
					}
					if t.Failed() {
						t.Fatalf("at step %d", step)
					}
					if !reached() {
						return
					}
				}
			})
		}
	}
}

// expectScheduled fails the test unless there is one snapshot for the last scheduled time, and the one that is kept.
func (w *world) expectScheduled() {
	w.Helper()
	status := w.get().Status.Snapshots
	if status == nil {
		return
	}
	all := w.snapshots()
	if len(all) != 2 || all[1].Name != status.LastSnapshot || all[0].Status.TakenAt == nil || all[1].Status.TakenAt != nil {
		w.Errorf("ClusterSnapshots: %+v", all)
	}
}

// takePrevious takes the snapshots of states before a restore.
func (w *world) takePrevious() {
	w.Helper()
	if len(w.previous()) > 0 {
		w.takeSnapshots()
	}
}

// expectRestored fails the test unless a requested restore was done once, after a snapshot.
func (w *world) expectRestored() {
	w.Helper()
	if w.get().Spec.Restore == nil {
		return
	}
	w.expect(v1alpha1.ConditionRestored, "True", v1alpha1.ReasonRestored)
	if previous := w.previous(); w.restores() != "1" || len(previous) != 1 || w.get().Status.Restore.Previous != previous[0].Name {
		w.Errorf("restores: %s, snapshots before: %+v", w.restores(), previous)
	}
}

func onWrite(moment harness.Moment, raise func() error) func(*world, int) func() bool {
	return func(w *world, step int) func() bool {
		faulty, reached := harness.OnWrite(w.client, step, moment, raise)
		w.useClient(faulty)
		return reached
	}
}

func onCall(raise func() error) func(*world, int) func() bool {
	return func(w *world, step int) func() bool {
		calls := -1
		w.outside.Fail(func(fake.Call) error {
			if calls++; calls == step {
				return raise()
			}
			return nil
		})
		return func() bool { return calls >= step && step < 12 } // the calls of Observe never end
	}
}

// A message is for people: nothing in it may change by itself.
func TestNothingFlaps(t *testing.T) {
	w := newWorld(t)
	w.made()
	before := w.get()
	w.writes = nil
	for range 10 {
		w.pass(time.Minute)
		w.reconcile()
	}
	if len(w.writes) > 0 || w.get().ResourceVersion != before.ResourceVersion {
		t.Errorf("nothing happened, and it wrote %v", fmt.Sprint(w.writes))
	}
}

// A cache that is behind still has a Cluster that was let go: nothing is begun for it again.
func TestAStaleCacheBeginsNothing(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.delete()
	stale := w.get()
	w.settle()
	w.expectNothing()
	w.outside.Change(stale.UID, func(*fake.Cluster) *fake.Cluster { return &fake.Cluster{Name: w.name} }) // as if something were left
	w.outside.Calls()
	for range 3 {
		if _, err := w.Reconcile(t.Context(), stale); err != nil {
			t.Fatal(err)
		}
	}
	stale.DeletionTimestamp = nil
	if _, err := w.Reconcile(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if calls := w.outside.Calls(); len(calls) > 0 {
		t.Errorf("calls of the engine: %v", calls)
	}
	w.outside.Change(stale.UID, func(*fake.Cluster) *fake.Cluster { return nil })
}

// A cache that is behind has no Kubeconfig yet, but there is one: it goes with the Cluster, also where no garbage collector
// runs. What was let go is not told again.
func TestAStaleCacheLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.useClient(interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, found client.Object, opts ...client.GetOption) error {
			if _, isKubeconfig := found.(*v1alpha1.Kubeconfig); isKubeconfig {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "kubeconfigs"}, key.Name)
			}
			return c.Get(ctx, key, found, opts...)
		},
	}))
	w.delete()
	stale := w.get()
	w.settle()
	w.expectNothing()
	w.events()
	if _, err := w.Reconcile(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if events := w.events(); events != "" {
		t.Errorf("events of a Cluster that is gone: %s", events)
	}
}

// Somebody writes to the Cluster between what the cache has and the moment at which it is let go. The engine has dropped what
// it knew by then, so nothing may look at the cluster again.
func TestAConflictAtTheEndIsNoNewBeginning(t *testing.T) {
	w := newWorld(t)
	w.made()
	conflicts := 0
	w.useClient(interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if changed, isCluster := object.(*v1alpha1.Cluster); isCluster && len(changed.Finalizers) == 0 && conflicts < 2 {
				conflicts++
				w.change(func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"conflict": fmt.Sprint(conflicts)} })
			}
			return c.Patch(ctx, object, patch, opts...)
		},
	}))
	w.outside.Calls()
	w.delete()
	w.settle()
	w.expectNothing()
	count := map[string]int{}
	for _, call := range w.outside.Calls() {
		count[call.Method]++
	}
	if conflicts != 2 || count["Delete"] != 1 || count["Abandon"] != 1 {
		t.Errorf("after %d conflicts the engine was called so: %v; want one Delete and one Abandon", conflicts, count)
	}
}
