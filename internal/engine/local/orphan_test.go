package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// TestLongALostClusterIsStopped loses the Cluster of a cluster that runs, and brings it back as a restored etcd would: with
// its UID.
func TestLongALostClusterIsStopped(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	m := startManaged(t, "lost-", opts)
	api, engine, reconciler, recorder := m.api, m.engine, m.reconciler, m.recorder
	request := cluster.Request{Name: m.cluster.Name, UID: m.cluster.UID, Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	dir := filepath.Join(opts.Dir, string(request.UID))
	inside := clientOf(t, engine, request)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	if err := inside.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}

	request.ManagementClusterUID = managementClusterUIDOf(t, engine)
	harness.Eventually(t, "all of it runs", func() bool { return len(left(t, dir)) > 5 })
	reconciler.Sweep(t.Context()) // it has its object
	lose(t, api, m.cluster.Name)
	if all := left(t, dir); len(all) <= 5 {
		t.Fatalf("before it is swept only these are left: %v", all)
	}
	reconciler.Sweep(t.Context())
	if rest := left(t, dir); len(rest) != 1 {
		t.Errorf("after the sweep are left: %v; want only the data", rest)
	}
	reconciler.Sweep(t.Context())
	told := orphanEvents(recorder)
	if len(told) != 1 || !strings.Contains(told[0], dir) {
		t.Errorf("events of the two sweeps: %q", told)
	}

	// The object is back. Nobody reconciles it, because no API takes an object with that UID.
	applyAndWait(t, engine, request)
	if err := clientOf(t, engine, request).Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Errorf("what was in the cluster before: %v", err)
	}

	// Another API has it now, or one that is not known.
	for _, note := range []string{`{"name":"x","home":"another"}`, `{"name":"x"}`, "", "damaged"} {
		if err := os.WriteFile(filepath.Join(dir, "owner.json"), []byte(note), 0o600); err != nil {
			t.Fatal(err)
		}
		reconciler.Sweep(t.Context())
	}
	if seen, err := engine.Observe(t.Context(), request); err != nil || !seen.Running || len(seen.Components) != 5 {
		t.Errorf("after sweeps that it is not for: %+v, %v", seen, err)
	}
	if told := orphanEvents(recorder); len(told) > 0 {
		t.Errorf("events of sweeps that found nothing: %q", told)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

// Another manager has the lock of the cluster, or this one is at work on it.
func TestLongAClusterThatIsAttendedIsNotStopped(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	engine := local.New(opts)
	request := cluster.Request{Name: "attended", UID: "attended", ManagementClusterUID: "home", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	if err := engine.Apply(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if err := engine.StopOrphan(t.Context(), request.UID); !errors.Is(err, cluster.ErrBusy) {
		t.Errorf("Stop while it is made says %v, want that another operation has to end first", err)
	}
	if found, err := engine.List(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("while it is made these are told: %+v, %v", found, err)
	}
	applyAndWait(t, engine, request)
	other := local.New(opts)
	if err := other.StopOrphan(t.Context(), request.UID); !errors.Is(err, cluster.ErrBusy) {
		t.Errorf("Stop by another manager says %v, want that another operation has to end first", err)
	}
	if seen, err := engine.Observe(t.Context(), request); err != nil || !seen.Running || !seen.Attended {
		t.Errorf("after another manager has tried to stop it: %+v, %v", seen, err)
	}
	for _, e := range []cluster.Engine{other, engine} {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Somebody deletes the Cluster, or applies it again, while it is being stopped.
func TestLongAStopIsFollowedByWhatIsWanted(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	engine := local.New(opts)
	request := cluster.Request{Name: "wanted", UID: "wanted", ManagementClusterUID: "home", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	applyAndWait(t, engine, request)
	stopping := func() <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- engine.StopOrphan(context.WithoutCancel(t.Context()), request.UID) }()
		harness.Eventually(t, "it is being stopped", func() bool {
			seen, err := engine.Observe(t.Context(), request)
			return err == nil && seen.Operation != nil && seen.Operation.Description == "Stopping"
		})
		return ended
	}
	ended := stopping()
	applied := false
	harness.Eventually(t, "it runs again", func() bool {
		seen, err := engine.Observe(t.Context(), request)
		if err != nil {
			return false
		}
		if !seen.Attended {
			applied = engine.Apply(t.Context(), request) == nil
		}
		return applied && seen.Attended && seen.Running && len(seen.Components) == 5
	})
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ended = stopping()
	request.Deleting = true
	if err := engine.Delete(t.Context(), request); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "it is removed", func() bool {
		seen, err := engine.Observe(t.Context(), request)
		return err == nil && !seen.Exists
	})
	if err := <-ended; err != nil {
		t.Logf("the stop, in whose place the removal came: %v", err) // it may have been too late for that
	}
	if rest := left(t, filepath.Join(opts.Dir, string(request.UID))); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

// clientOf returns a client of the API of a cluster.
func clientOf(t *testing.T, engine cluster.Engine, request cluster.Request) client.Client {
	t.Helper()
	seen, err := engine.Observe(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	access, err := kubeconfig.Parse(seen.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return harness.Client(t, access.Config, harness.Scheme(t))
}

// lose takes the finalizer off a Cluster and deletes it.
func lose(t *testing.T, api client.Client, name string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := &v1alpha1.Cluster{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		// Without a finalizer, and while nobody can give it one again.
		object.Spec.Paused, object.Finalizers = true, nil
		return api.Update(t.Context(), object)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// orphanEvents returns those of clusters that were stopped.
func orphanEvents(recorder *events.FakeRecorder) []string {
	return slices.DeleteFunc(harness.Events(recorder), func(event string) bool {
		return !strings.HasPrefix(event, "Warning "+v1alpha1.ReasonOrphanStopped)
	})
}

// managementClusterUIDOf returns that of the one cluster, as soon as it is applied.
func managementClusterUIDOf(t *testing.T, engine *local.Engine) types.UID {
	t.Helper()
	var found []cluster.HostedCluster
	harness.Eventually(t, "the cluster is told as running", func() bool {
		var err error
		if found, err = engine.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(found) == 1
	})
	return found[0].ManagementClusterUID
}
