package snapshot

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// store has one snapshot, and an error that the test sets.
type store struct {
	taken *Snapshot
	of    Source
	calls []string
	err   error
}

func (s *store) FindSnapshot(types.UID) (*Snapshot, error) { return s.taken, nil }

func (s *store) TakeSnapshot(_ context.Context, _ types.UID, of Source) (*Snapshot, error) {
	s.calls = append(s.calls, "take")
	if s.err != nil {
		return nil, s.err
	}
	s.of = of
	s.taken = &Snapshot{Cluster: of.Name, ClusterUID: of.UID, Version: "v1.36.3", Revision: 7, Size: 4096, TakenAt: time.Now()}
	return s.taken, nil
}

func (s *store) RemoveSnapshot(types.UID) error {
	s.calls = append(s.calls, "remove")
	if s.err == nil {
		s.taken = nil
	}
	return s.err
}

// fixture has a ClusterSnapshot and a Reconciler that the test calls.
type fixture struct {
	*stories.World[*v1alpha1.ClusterSnapshot]
	*Reconciler
	store store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	options := stories.Options{AddToScheme: v1alpha1.AddToScheme, Now: time.Now()}
	f := &fixture{World: stories.New[*v1alpha1.ClusterSnapshot](t, stories.Server, options)}
	f.Key = client.ObjectKey{Name: f.Namespace} // also that of the Cluster
	f.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.ClusterSnapshot] {
		f.Reconciler = &Reconciler{kube.NewBase(kind, cached, live, f.Recorder, f.Clock), &f.store}
		return f.Reconciler
	}
	f.Restart()
	f.Do(f.Client.Create(t.Context(), &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: f.Key.Name}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: f.Key.Name},
	}))
	return f
}

// createCluster creates the Cluster.
func (f *fixture) createCluster(spec v1alpha1.ClusterSpec) *v1alpha1.Cluster {
	f.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: f.Key.Name}, Spec: spec}
	f.Do(f.Client.Create(f.Context(), c))
	f.Cleanup(func() { _ = f.Client.Delete(context.WithoutCancel(f.Context()), c) })
	return c
}

// setReady sets the condition Ready of the Cluster to True.
func (f *fixture) setReady(c *v1alpha1.Cluster, reason string) {
	f.Helper()
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: c.Generation,
	})
	f.Do(f.Client.Status().Update(f.Context(), c))
}

// expect reconciles until nothing more is written, or a few times if the store fails, and checks the reason of Ready.
func (f *fixture) expect(want string) {
	f.Helper()
	if f.store.err == nil || errors.Is(f.store.err, ErrNotRunning) {
		f.Settle()
	} else {
		for range 5 {
			_, _ = f.Step()
		}
	}
	if got := f.Reasons(v1alpha1.ConditionReady); got != want {
		f.Errorf("got %s, want %s", got, want)
	}
}

// A snapshot waits for its Cluster, is taken once, outlives the Cluster, and takes its files along.
func TestLifeOfASnapshot(t *testing.T) {
	f := newFixture(t)
	f.expect(v1alpha1.ReasonClusterMissing)
	c := f.createCluster(v1alpha1.ClusterSpec{})
	f.expect(v1alpha1.ReasonClusterNotRunning)
	f.setReady(c, v1alpha1.ReasonStopped)
	f.expect(v1alpha1.ReasonClusterNotRunning)
	f.setReady(c, v1alpha1.ReasonAvailable)
	c.Spec.Running = ptr.To(false)
	f.Do(f.Client.Update(t.Context(), c)) // its controller has not seen it yet
	f.expect(v1alpha1.ReasonClusterNotRunning)
	c.Spec.Running = nil
	f.Do(f.Client.Update(t.Context(), c))
	f.setReady(c, v1alpha1.ReasonAvailable)
	f.store.err = ErrNotRunning
	f.expect(v1alpha1.ReasonClusterNotRunning)
	f.store.err = errors.New("no space left")
	f.expect(v1alpha1.ReasonSnapshotFailed)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	s := f.Object()
	if status := s.Status; !slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer) || status.Revision != 7 || status.Size.Value() != 4096 ||
		status.Version != "v1.36.3" || status.TakenAt == nil || f.store.of.Name != f.Key.Name || f.store.of.UID != c.UID || f.store.of.Spec.Engine != c.Spec.Engine {
		t.Errorf("finalizers: %v, status: %+v, of %+v", s.Finalizers, status, f.store.of)
	}
	f.Do(f.Client.Delete(t.Context(), c))
	f.expect(v1alpha1.ReasonSnapshotTaken)
	lost := f.store.taken
	f.store.taken = nil
	f.expect(v1alpha1.ReasonSnapshotLost)
	f.store.taken = lost // restored from a backup
	f.expect(v1alpha1.ReasonSnapshotTaken)
	f.Delete()
	f.store.err = errors.New("busy")
	f.expect(v1alpha1.ReasonSnapshotDeleting)
	f.store.err = nil
	f.expect("gone")
	f.store.calls = slices.Compact(f.store.calls)
	if diff := cmp.Diff([]string{"take", "remove"}, f.store.calls); diff != "" {
		t.Errorf("calls of the store (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"Warning ClusterMissing", "Warning SnapshotFailed", "Normal SnapshotTaken", "Warning SnapshotLost", "Normal SnapshotTaken", "Warning Terminating",
	}, f.EventReasons()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The engine rke has no snapshots.
func TestEngineWithoutSnapshots(t *testing.T) {
	f := newFixture(t)
	f.createCluster(v1alpha1.ClusterSpec{ConfigPath: "/a/cluster.yml"})
	f.expect(v1alpha1.ReasonEngineNotSupported)
	if len(f.store.calls) > 0 {
		t.Errorf("calls of the store: %v", f.store.calls)
	}
}

// A manager that is killed between two writes leaves no files of an object that is gone, and takes no snapshot twice.
func TestKilledBetweenWrites(t *testing.T) {
	f := newFixture(t)
	f.setReady(f.createCluster(v1alpha1.ClusterSpec{}), v1alpha1.ReasonAvailable)
	for write := 1; write <= 3; write++ {
		failing, _ := harness.OnWrite(f.Client, write, harness.Before, func() error { return errors.New("killed") })
		f.UseClient(failing)
		_, _ = f.Reconcile(t.Context(), f.Object()) // it may be killed
		if s := f.Object(); len(f.store.calls) > 0 && !slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer) {
			t.Fatal("files without a finalizer")
		}
	}
	f.Restart()
	f.expect(v1alpha1.ReasonSnapshotTaken)
	if diff := cmp.Diff([]string{"take"}, f.store.calls); diff != "" {
		t.Errorf("calls of the store (-want +got):\n%s", diff)
	}
	stale := f.Object()
	f.Do(f.Client.Delete(t.Context(), stale))
	f.expect("gone")
	stale.Status.TakenAt = nil
	if _, err := f.Reconcile(t.Context(), stale); err != nil { // the cache does not know yet that it is gone
		t.Error(err)
	}
	if f.store.taken != nil {
		t.Error("a snapshot of an object that is gone")
	}
}
