package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// adminOf returns a client of a cluster, as its administrator.
func adminOf(t *testing.T, engine cluster.Engine, request cluster.Request) kubernetes.Interface {
	t.Helper()
	seen, err := engine.Observe(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	access, err := kubeconfig.Parse(seen.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(access.Config)
}

// awaitToken waits until the Secret of a ServiceAccount has a token other than that one.
func awaitToken(t *testing.T, client kubernetes.Interface, before string) string {
	t.Helper()
	var token string
	harness.Eventually(t, "the Secret has a token", func() bool {
		secret, err := client.CoreV1().Secrets("default").Get(t.Context(), "token", metav1.GetOptions{})
		if err == nil {
			token = string(secret.Data[corev1.ServiceAccountTokenKey])
		}
		return token != "" && token != before
	})
	return token
}

// fill creates objects that a fork has to keep or to replace. It returns the token of a ServiceAccount.
func fill(t *testing.T, client kubernetes.Interface) (token string) {
	t.Helper()
	core := client.CoreV1()
	_, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	if _, err := core.Nodes().Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := core.Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return awaitToken(t, client, "")
}

// checkFork checks that a fork has the objects of fill, and identities of its own.
func checkFork(t *testing.T, client, source kubernetes.Interface, token string) {
	t.Helper()
	core := client.CoreV1()
	if kept, err := core.ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil || kept.Data["a"] != "b" {
		t.Errorf("the fork has lost an object: %v, %v", kept, err)
	}
	nodes, err := core.Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := source.CoreV1().Nodes().Get(t.Context(), "simulated-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 || nodes.Items[0].Name != theirs.Name || nodes.Items[0].UID == theirs.UID {
		t.Errorf("the fork has nodes of the other cluster: %v", nodes.Items)
	}
	renewed := awaitToken(t, client, token)
	if isServiceAccount(t, client, token) || !isServiceAccount(t, client, renewed) || isServiceAccount(t, source, renewed) {
		t.Error("one of the clusters accepts the tokens of the other")
	}
	authority := func(client kubernetes.Interface) string {
		root, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return root.Data["ca.crt"]
	}
	harness.Eventually(t, "the fork publishes its own authority", func() bool {
		own := authority(client)
		return own != "" && own != authority(source)
	})
}

// isServiceAccount reports whether a cluster takes a token for one of a ServiceAccount.
func isServiceAccount(t *testing.T, client kubernetes.Interface, token string) bool {
	t.Helper()
	is, err := reviewToken(t.Context(), client, token)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// A snapshot of a cluster that runs outlives it, and a new cluster that is made of it has its objects, but no identity of it.
func TestLongFork(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	engine := local.New(opts)
	t.Cleanup(func() { _ = engine.Close() }) // also after a failure, so that its clusters can be stopped
	source := cluster.Request{Name: "source", UID: "source", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	of := snapshot.Source{Name: source.Name, UID: source.UID}
	if _, err := storeOf(opts, engine).TakeSnapshot(t.Context(), "early", of); !errors.Is(err, snapshot.ErrNotRunning) {
		t.Errorf("a snapshot of a cluster that does not exist: %v", err)
	}
	began := time.Now()
	applyAndWait(t, engine, source)
	empty := time.Since(began)
	client := adminOf(t, engine, source)
	token := fill(t, client)
	began = time.Now()
	taken, err := storeOf(opts, engine).TakeSnapshot(t.Context(), "snapshot", of)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the snapshot took %v: %+v", time.Since(began), taken)
	if found, err := storeOf(opts, engine).FindSnapshot("snapshot"); err != nil || found == nil || *found != *taken || found.Revision == 0 || found.Size == 0 || found.Version == "" {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil { // the fork has it
		t.Fatal(err)
	}

	fork := cluster.Request{Name: "fork", UID: "fork", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal, From: &v1alpha1.ClusterSource{Snapshot: "s"}}}
	fork.Snapshot.Err = fmt.Errorf("%w: not there", cluster.ErrSnapshot)
	if _, err := engine.Observe(t.Context(), fork); !errors.Is(err, cluster.ErrSnapshot) {
		t.Errorf("a fork without its snapshot: %v", err)
	}
	fork.Snapshot = cluster.SnapshotRef{UID: "other"}
	if err := engine.Apply(t.Context(), fork); !errors.Is(err, cluster.ErrSnapshot) || !strings.Contains(err.Error(), "no files") {
		t.Errorf("a fork of a snapshot without files: %v", err)
	}
	fork.Snapshot.UID = "snapshot"
	began = time.Now()
	applyAndWait(t, engine, fork)
	t.Logf("the fork has started in %v, the empty cluster in %v", time.Since(began), empty)
	checkFork(t, adminOf(t, engine, fork), client, token)
	if _, err := engine.Observe(t.Context(), cluster.Request{Name: "fork", UID: "fork", Spec: fork.Spec, Snapshot: cluster.SnapshotRef{Err: cluster.ErrSnapshot}}); err != nil {
		t.Errorf("a fork still needs its snapshot: %v", err)
	}
	if err := opts.Snapshots.RemoveSnapshot("snapshot"); err != nil {
		t.Fatal(err)
	}
	if err := opts.Snapshots.RemoveSnapshot("snapshot"); err != nil {
		t.Errorf("removed again: %v", err)
	}
	expectSnapshots(t, opts)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
}

// A snapshot ends with its cluster, and does not wait for an etcd that is gone: its ClusterSnapshot could not be deleted until then.
func TestASnapshotEndsWithItsCluster(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	engine := local.New(opts)
	t.Cleanup(func() { _ = engine.Close() })
	request := cluster.Request{Name: "ends", UID: "ends", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	applyAndWait(t, engine, request)
	signalComponent(t, filepath.Join(opts.Dir, "ends"), "etcd", syscall.SIGSTOP) // it does not answer
	ended := make(chan error, 1)
	go func() {
		_, err := storeOf(opts, engine).TakeSnapshot(t.Context(), "snapshot", snapshot.Source{Name: request.Name, UID: request.UID})
		ended <- err
	}()
	harness.Eventually(t, "the snapshot is being taken", func() bool {
		begun, err := filepath.Glob(filepath.Join(string(opts.Snapshots), "snapshot.partial-*", "etcd.db*"))
		return err == nil && len(begun) > 0
	})
	if err := engine.Delete(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, snapshot.ErrNotRunning) {
			t.Errorf("the snapshot ended with %v", err)
		}
	case <-time.After(harness.WaitTimeout):
		t.Fatal("the snapshot waits for an etcd that is gone")
	}
	expectSnapshots(t, opts)
}

// expectSnapshots checks the names in the directory of snapshots.
func expectSnapshots(t *testing.T, opts local.Options, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(string(opts.Snapshots))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("there are %v in the directory of snapshots, want %v", names, want)
	}
}

// TestLongAForkThatIsKilled kills the manager at many moments of making a cluster of a snapshot; the next manager goes on.
func TestLongAForkThatIsKilled(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	engine := local.New(opts)
	t.Cleanup(func() { _ = engine.Close() }) // also after a failure, so that its clusters can be stopped
	source := helperArgs{Dir: opts.Dir, UID: "source"}
	applyAndWait(t, engine, source.request())
	client := adminOf(t, engine, source.request())
	token := fill(t, client)
	if _, err := storeOf(opts, engine).TakeSnapshot(t.Context(), "snapshot", snapshot.Source{Name: "victim", UID: "source"}); err != nil {
		t.Fatal(err)
	}
	expectSnapshots(t, opts, "snapshot")
	forked := helperArgs{Dir: opts.Dir, Snapshots: opts.Snapshots, UID: "fork", From: "snapshot"}
	dir := filepath.Join(opts.Dir, "fork")
	for i := range 16 {
		forked.After = time.Duration(i) * 40 * time.Millisecond
		killedManager(t, forked)
		once(t, dir)
	}
	for _, forked.At = range []string{"Starting etcd", "Starting kube-apiserver", "Starting kube-controller-manager"} {
		killedManager(t, forked)
		once(t, dir)
	}
	applyAndWait(t, engine, forked.request())
	checkFork(t, adminOf(t, engine, forked.request()), client, token)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
}

// reviewToken asks a cluster whether a token is valid.
func reviewToken(ctx context.Context, client kubernetes.Interface, token string) (bool, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && review.Status.Authenticated, err
}
