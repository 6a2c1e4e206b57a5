//go:build linux

package node

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/testing/writer"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// longestPause is how long a cluster of three may not acknowledge writes.
const longestPause = 10 * time.Second

// TestLongHostedReplicas is the life of a Cluster with three members of etcd and three API servers on three nodes, while something writes:
// Pods are killed, a change is rolled out, a node is drained and another one lost. No acknowledged write is lost.
func TestLongHostedReplicas(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	u := newUser(t)
	c := &tenant{user: u, kubeconfig: filepath.Join(u.home, "demo.kubeconfig")}
	config := filepath.Join(u.home, "keelson.yaml")
	if err := os.WriteFile(config, []byte(hostedConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	up := []string{"keelson", "up", "--detach", "--node=real", "--nodes=3", "--vm-driver=fake", "--data-dir", u.data, "--config", config}
	u.OK(t, up...)
	u.loadKube(t)
	u.kubectl(t, "create", "namespace", "team")
	u.kubectl(t, "label", "namespace", "team", "pod-security.kubernetes.io/enforce=restricted")
	began := time.Now()
	u.apply(t, strings.Replace(hostedCluster, "namespace: team", "namespace: team, replicas: 3", 1))
	c.awaitCondition(t, "Ready")
	t.Logf("Ready after %.1f s", time.Since(began).Seconds())
	if err := os.WriteFile(c.kubeconfig, []byte(c.cluster(t, "kubeconfig", "demo")), 0o600); err != nil {
		t.Fatal(err)
	}
	u.allServe(t)
	w := writer.Start(t, func() kubernetes.Interface { return c.connect(t) }, "written")
	w.AwaitProgress(t)
	w.LongestPause()
	for _, fault := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a member of etcd is killed", func(t *testing.T) { u.killPod(t, "etcd") }},
		{"an API server is killed", func(t *testing.T) { u.killPod(t, "apiserver") }},
		{"a change is rolled out", func(t *testing.T) {
			c.patchSpec(t, `{"apiServer":{"extraArgs":{"event-ttl":"2h"}}}`)
			u.Until(t, "it is applied", transcript.Is("2"), "kubectl", "get", "deployments", "--namespace", "team", "-o", "jsonpath={.items[0].status.observedGeneration}")
		}},
		{"a node is drained", func(t *testing.T) {
			u.kubectl(t, "drain", "keelson-node-2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", transcript.WaitTimeout.String())
			u.kubectl(t, "uncordon", "keelson-node-2")
		}},
	} {
		if !t.Run(fault.name, func(t *testing.T) {
			fault.do(t)
			u.allServe(t)
			w.AwaitProgress(t)
			pause := w.LongestPause()
			t.Logf("the longest pause is %.1f s, after %d writes", pause.Seconds(), w.Count())
			if pause > longestPause {
				t.Errorf("no write was acknowledged for %.1f s", pause.Seconds())
			}
		}) {
			return
		}
	}
	t.Run("a node is lost", func(t *testing.T) {
		u.keelsonNode(t, "kill", "keelson-node-3")
		u.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/keelson-node-3", "--timeout", transcript.WaitTimeout.String())
		w.AwaitProgress(t)
		pause := w.LongestPause()
		t.Logf("the longest pause is %.1f s, after %d writes", pause.Seconds(), w.Count())
		if pause > longestPause {
			t.Errorf("no write was acknowledged for %.1f s", pause.Seconds())
		}
	})
	w.RequireAll(t, c.connect(t))
	t.Run("it is restored, though its manager is killed", func(t *testing.T) {
		u.keelsonNode(t, "start", "keelson-node-3")
		u.allServe(t)
		c.restoredAcrossKills(t, up)
		w.RequireAll(t, c.connect(t))
	})
}

// restoredAcrossKills restores the cluster, while its manager is killed before the objects are replaced, and as they are.
func (c *tenant) restoredAcrossKills(t *testing.T, up []string) {
	c.in(t, "create", "configmap", "earlier")
	c.apply(t, hostedSnapshot)
	c.kubectl(t, "wait", "clustersnapshot/before", "--for=condition=Ready", "--timeout", transcript.WaitTimeout.String())
	c.in(t, "delete", "configmap", "earlier")
	c.in(t, "create", "configmap", "later")
	c.patchSpec(t, `{"restore":{"snapshot":"before","requestedAt":"2026-01-02T03:04:05Z"}}`)
	for _, kill := range []struct {
		moment string
		has    func() bool
	}{
		{"no API server is wanted", func() bool {
			return c.kubectl(t, "get", "deployments", "--namespace", "team", "-o", "jsonpath={.items[0].spec.replicas}") == "0"
		}},
		{"the objects are replaced", func() bool {
			return exec.CommandContext(t.Context(), "pgrep", "-f", "^/keelson-kube etcd-load").Run() == nil
		}},
	} {
		transcript.Eventually(t, kill.moment, kill.has)
		c.killManager(t)
		c.OK(t, up...)
	}
	c.awaitCondition(t, "Restored")
	c.awaitCondition(t, "Ready")
	c.allServe(t)
	if got := c.in(t, "get", "configmap", "earlier", "later", "--ignore-not-found", "-o", "name"); strings.TrimSpace(got) != "configmap/earlier" {
		t.Errorf("after the restore there is %s", got)
	}
}

// connect returns a client with a connection of its own.
func (c *tenant) connect(t *testing.T) kubernetes.Interface {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		t.Error(err)
	}
	config.QPS, config.Timeout = -1, 2*time.Second
	config.Dial = (&net.Dialer{}).DialContext // without it, client-go shares connections
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Error(err)
	}
	return client
}

// allServe waits until all members of etcd and all API servers are ready.
func (u *user) allServe(t *testing.T) {
	t.Helper()
	u.Until(t, "all are ready", transcript.Is("3/3 3/3"), "kubectl", "get", "deployments,statefulsets", "--namespace", "team",
		"-o", "jsonpath={range .items[*]}{.status.readyReplicas}/{.status.updatedReplicas} {end}")
}

// killPod kills a Pod of a component.
func (u *user) killPod(t *testing.T, component string) {
	t.Helper()
	pods := strings.Fields(u.kubectl(t, "get", "pods", "--namespace", "team", "--selector", "clusterprovisioner.rke.io/component="+component, "-o", "name"))
	if len(pods) == 0 {
		t.Fatalf("there is no Pod of %s", component)
	}
	u.kubectl(t, "delete", pods[0], "--namespace", "team", "--grace-period=0", "--force")
}
