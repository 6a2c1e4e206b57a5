package local_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// put creates a ConfigMap and returns its resource version.
func put(t *testing.T, client kubernetes.Interface, name string) int64 {
	t.Helper()
	made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version, err := strconv.ParseInt(made.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// expectObjects checks which ConfigMaps there are.
func expectObjects(t *testing.T, client kubernetes.Interface, there, gone string) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), there, metav1.GetOptions{}); err != nil {
		t.Errorf("%s: %v", there, err)
	}
	if _, err := maps.Get(t.Context(), gone, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%s is there after the restore: %v", gone, err)
	}
}

// restoreAndWait requests a restore, waits for the end of the operation, and returns its error.
func restoreAndWait(t *testing.T, engine cluster.Engine, request cluster.Request) error {
	t.Helper()
	if err := engine.Apply(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	var ended error
	harness.Eventually(t, "the restore has ended", func() bool {
		seen, err := engine.Observe(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		o := seen.Operation
		if o == nil || o.Stale || o.State == v1alpha1.OperationProcessing {
			return false
		}
		ended = o.Err
		return true
	})
	return ended
}

// A cluster gets the objects of a snapshot back, while its address, its kubeconfig and the tokens in it stay valid. Clients that keep a
// resource version notice it. A snapshot that cannot be used changes nothing.
func TestLongRestoreInPlace(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	engine := local.New(opts)
	t.Cleanup(func() { _ = engine.Close() })
	request := cluster.Request{Name: "restored", UID: "restored", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	applyAndWait(t, engine, request)
	client := adminOf(t, engine, request)
	token := fill(t, client)
	take := func(name string) {
		t.Helper()
		if _, err := storeOf(opts, engine).TakeSnapshot(t.Context(), types.UID("uid-"+name), snapshot.Source{Name: request.Name, UID: request.UID}); err != nil {
			t.Fatal(err)
		}
	}
	take("first")
	later := put(t, client, "later")
	take("second")
	restore := func(token, name string) error {
		t.Helper()
		request.Restore = &cluster.Restore{Token: token, Name: name, UID: types.UID("uid-" + name)}
		return restoreAndWait(t, engine, request)
	}
	refused := func(token, name, says string) {
		t.Helper()
		if err := restore(token, name); !errors.Is(err, cluster.ErrSnapshot) || !strings.Contains(err.Error(), says) {
			t.Errorf("a restore from %s: %v, want %q", name, err, says)
		}
		applyAndWait(t, engine, request) // it runs as before
		expectObjects(t, client, "later", "none")
	}
	refused("a", "missing", "no files")
	other := cluster.Request{Name: "other", UID: "other", Spec: request.Spec}
	applyAndWait(t, engine, other)
	if _, err := storeOf(opts, engine).TakeSnapshot(t.Context(), "uid-other", snapshot.Source{Name: "other", UID: "other"}); err != nil {
		t.Fatal(err)
	}
	refused("b", "other", "is of another Cluster")

	began := time.Now()
	if err := restore("c", "first"); err != nil {
		t.Fatal(err)
	}
	t.Logf("restored in %v", time.Since(began))
	applyAndWait(t, engine, request)
	expectObjects(t, client, "kept", "later")
	if !isServiceAccount(t, client, token) {
		t.Error("the cluster rejects its own token")
	}
	versions := []int64{later, put(t, client, "anew")}
	if again := adminOf(t, engine, request); again.CoreV1().RESTClient().Get().URL().Host != client.CoreV1().RESTClient().Get().URL().Host {
		t.Error("the address has changed")
	}
	if err := restore("d", "second"); err != nil { // it can be undone
		t.Fatal(err)
	}
	expectObjects(t, client, "later", "anew")
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "later", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := engine.Apply(t.Context(), request); err != nil { // it was done
		t.Fatal(err)
	}
	expectObjects(t, client, "kept", "later")
	if err := restore("e", "first"); err != nil { // the same snapshot again
		t.Fatal(err)
	}
	versions = append(versions, put(t, client, "last"))
	for i := range versions[1:] {
		if versions[i] >= versions[i+1] {
			t.Errorf("resource versions go back: %v", versions)
		}
	}
	if rest, err := filepath.Glob(filepath.Join(opts.Dir, "restored", "restore-*")); err != nil || len(rest) > 0 {
		t.Errorf("left behind: %v, %v", rest, err)
	}

	request.Restore = nil
	applyAndWait(t, engine, request) // the next requests have no restore
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	engine = local.New(opts)
	applyAndWait(t, engine, request)
	expectObjects(t, adminOf(t, engine, request), "last", "anew")
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLongARestoreThatIsKilled kills the manager at each step of a restore; the next one completes it, once.
func TestLongARestoreThatIsKilled(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	args := helperArgs{Dir: opts.Dir, Snapshots: opts.Snapshots, UID: "victim"}
	dir := filepath.Join(opts.Dir, "victim")
	engine := local.New(opts)
	applyAndWait(t, engine, args.request())
	client := adminOf(t, engine, args.request())
	put(t, client, "kept")
	if _, err := storeOf(opts, engine).TakeSnapshot(t.Context(), "snapshot", snapshot.Source{Name: "victim", UID: "victim"}); err != nil {
		t.Fatal(err)
	}
	put(t, client, "later")
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	args.Restore = "snapshot"
	for _, args.At = range []string{"Restoring the snapshot", "Stopping the cluster, to replace its data"} {
		killedManager(t, args)
		once(t, dir)
	}
	args.At = ""
	for i := range 12 {
		args.After = time.Duration(i) * 150 * time.Millisecond
		killedManager(t, args)
		once(t, dir)
	}
	engine = local.New(opts)
	t.Cleanup(func() { _ = engine.Close() })
	if err := restoreAndWait(t, engine, args.request()); err != nil {
		t.Fatal(err)
	}
	applyAndWait(t, engine, args.request())
	client = adminOf(t, engine, args.request())
	expectObjects(t, client, "kept", "later")
	put(t, client, "after")
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	args.At = "The spec is applied" // adopted, and not restored again
	killedManager(t, args)
	expectObjects(t, client, "after", "later")
	if rest, err := filepath.Glob(filepath.Join(dir, "restore-*")); err != nil || len(rest) > 0 {
		t.Errorf("left behind: %v, %v", rest, err)
	}
}
