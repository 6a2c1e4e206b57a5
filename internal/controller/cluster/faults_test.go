package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// due is when the next snapshot of a schedule of 30 minutes is certainly due: it counts from the creation of the Cluster.
const due = 30*time.Minute + 5*time.Second

// lives are what happens to a Cluster while everything goes wrong.
var lives = []struct {
	name   string
	before func(*world)
	happen func(*world)
	gone   bool
}{
	{"it is created", nil, func(w *world) { w.create() }, false},
	{"it is created as the original stored it", nil, func(w *world) {
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
		w.create(func(c *v1alpha1.Cluster) {
			c.Spec.Snapshots = &commonv1.SnapshotSchedule{Schedule: "@every 30m", Keep: ptr.To[int32](1)}
		})
		w.answer(well())
		w.settle()
		w.pass(due)
		w.settle()
		w.takeSnapshots()
		w.pass(due)
		w.settle()
		w.takeSnapshots()
	}, func(w *world) { w.pass(due) }, false},
	{"it is restored, and its state before is kept", func(w *world) {
		w.create()
		w.answer(well())
		w.settle()
		w.snapshot(w.name+"-a", w.name)
	}, func(w *world) { w.change(restoring(w.name+"-a", once, true)) }, false},
	{"it is deleted", func(w *world) { w.create() }, func(w *world) { w.delete() }, true},
	{"it expires", func(w *world) {
		w.create(func(c *v1alpha1.Cluster) { c.Spec.ExpiresAfter = &metav1.Duration{Duration: time.Hour} })
		w.settle()
		w.pass(time.Hour)
	}, func(w *world) { w.pass(v1alpha1.ExpiryNotice) }, true},
	{"it is deleted before anybody saw it", nil, func(w *world) {
		w.create(func(c *v1alpha1.Cluster) { c.Finalizers = []string{v1alpha1.LegacyFinalizer} })
		w.delete()
	}, true},
}

// TestStories tells that a Cluster ends as it does undisturbed, whatever write or call of the engine is the last
// one of a process, or fails.
func TestStories(t *testing.T) {
	table := stories.Table[*world]{
		New: startWorld, Steps: 6,
		OnCall: func(w *world, at func() error) { w.outside.Fail(func(fake.Call) error { return at() }) },
		Finish: func(w *world) {
			for range 3 { // failures have their pauses
				w.settle()
				w.pass(11 * time.Second)
				w.takePrevious()
			}
			if !w.IsGone() {
				w.answer(well())
				w.settle()
			}
		},
	}
	for _, life := range lives {
		table.Stories = append(table.Stories, stories.Story[*world]{
			Name: life.name,
			Before: func(w *world) {
				if life.before != nil {
					life.before(w)
					w.settle()
				}
			},
			Happen: life.happen,
			End: func(w *world) {
				if life.gone {
					w.expectNothing()
					return
				}
				w.expectWhole()
				w.expectScheduled()
				w.expectRestored()
				w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
				w.delete()
				w.settle()
				w.expectNothing()
			},
		})
	}
	table.Run(t)
}

// Step reconciles; the API of the cluster is well.
func (w *world) Step() (reconcile.Result, error) {
	w.Helper()
	if !w.IsGone() {
		w.answer(well())
	}
	result, err := w.World.Step()
	w.takePrevious()
	return result, err
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
	if previous := w.previous(); w.restores() != once || len(previous) != 1 || w.get().Status.Restore.Previous != previous[0].Name {
		w.Errorf("restores: %s, snapshots before: %+v", w.restores(), previous)
	}
}

// A message is for people: nothing in it may change by itself.
func TestNothingFlaps(t *testing.T) {
	w := newWorld(t)
	w.made()
	before := w.get()
	w.Writes = nil
	for range 10 {
		w.pass(time.Minute)
		w.reconcile()
	}
	if len(w.Writes) > 0 || w.get().ResourceVersion != before.ResourceVersion {
		t.Errorf("nothing happened, and it wrote %v", fmt.Sprint(w.Writes))
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
	w.UseClient(interceptor.NewClient(w.client, interceptor.Funcs{
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
	w.UseClient(interceptor.NewClient(w.client, interceptor.Funcs{
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
