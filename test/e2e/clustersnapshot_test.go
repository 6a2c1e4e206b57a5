package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A cluster is copied with its objects while it runs. The copy has credentials of its own, and outlives the snapshot.
func TestLongClusterSnapshot(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	keelson := func(verb string, args ...string) []string {
		return append([]string{"keelson", "cluster", verb, "--kubeconfig", kubeconfig}, args...)
	}
	began := time.Now()
	s.OK(t, keelson("create", "first", "--wait")...)
	empty := time.Since(began)
	user := s.user(t, "first")
	user.kubectl(t, "create", "configmap", "kept", "--from-literal", "a=b")
	user.kubectl(t, "create", "deployment", "web", "--image", "nginx")
	user.wait(t, "condition=Available", "deployment/web")
	node := user.field(t, "node/simulated-0", "{.metadata.uid}")
	transcript.Contains(t, s.Fails(t, 1, keelson("snapshot", "missing")...), `there is no Cluster "missing"`)
	s.OK(t, keelson("snapshot", "first", "--name", "before", "--wait")...)
	transcript.Contains(t, s.Fails(t, 1, keelson("snapshot", "first", "--name", "before")...), "ClusterSnapshot before exists already")
	const snapshot = "clustersnapshot/before"
	transcript.Contains(t, s.kubectl(t, "get", snapshot), "CLUSTER", "SIZE", "VERSION", "first", "True", "v1.")
	files := filepath.Join(stateDir, "cluster-snapshots", s.field(t, snapshot, "{.metadata.uid}"))
	if info, err := os.Stat(filepath.Join(files, "etcd.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the snapshot: %v, %v", info, err)
	}
	user.kubectl(t, "delete", "configmap", "kept") // the snapshot has it

	began = time.Now()
	s.OK(t, keelson("create", "second", "--from", "before", "--wait")...)
	t.Logf("ready after %v; the empty one after %v", time.Since(began).Round(time.Millisecond), empty.Round(time.Millisecond))
	transcript.Contains(t, s.Fails(t, 1, "kubectl", "--kubeconfig", kubeconfig, "patch", "cluster", "second", "--type=merge", "-p", `{"spec":{"from":null}}`), "cannot be added or removed")
	copied := s.user(t, "second")
	transcript.Contains(t, copied.kubectl(t, "auth", "whoami"), "second-admin")
	copied.kubectl(t, "get", "configmap", "kept")
	copied.wait(t, "condition=Available", "deployment/web")
	copied.kubectl(t, "scale", "deployment", "web", "--replicas", "3")
	copied.kubectl(t, "wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/web", "--timeout", transcript.WaitTimeout.String())
	if own := copied.field(t, "node/simulated-0", "{.metadata.uid}"); own == node {
		t.Error("the fork has the Node of the other cluster")
	}
	stranger := user
	stranger.Env["KUBECONFIG"] = filepath.Join(t.TempDir(), "stranger")
	text, err := os.ReadFile(s.user(t, "first").Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	endpoint := func(cluster string) string { return s.field(t, "cluster/"+cluster, "{.status.endpoint}") }
	moved := strings.ReplaceAll(string(text), endpoint("first"), endpoint("second"))
	if err := os.WriteFile(stranger.Env["KUBECONFIG"], []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, stranger.Fails(t, 1, "kubectl", "get", "namespaces"), "certificate")

	// The snapshot is kept without its Cluster, and goes with its object.
	s.OK(t, keelson("delete", "first", "--wait")...)
	s.wait(t, "condition=Ready", snapshot)
	s.kubectl(t, "delete", snapshot)
	if _, err := os.Stat(files); !os.IsNotExist(err) {
		t.Errorf("the files of the deleted snapshot: %v", err)
	}
	copied.kubectl(t, "get", "configmap", "kept")
	s.OK(t, keelson("delete", "second", "--wait")...)
}
