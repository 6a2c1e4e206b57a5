//go:build linux

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// processIn returns the ID of the process of a component of the Cluster in a directory; 0 while it does not run.
func processIn(t *testing.T, dir, component string) int {
	t.Helper()
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuses {
		if s.ID == component && s.State == process.Running {
			return s.PID
		}
	}
	return 0
}

// killed kills the manager when a component of the Cluster in a directory is another process than before, or has ended, and starts the next one.
// manager then.
func (c *tenant) killed(t *testing.T, dir, component string, before int, ended bool) {
	t.Helper()
	transcript.Eventually(t, component+" is another process", func() bool {
		pid := processIn(t, dir, component)
		return pid != before && (ended || pid != 0)
	})
	c.killManager(t)
	c.start(t)
}

// runsOnce checks that the Pods of the Deployment run on the only node, which there is once.
func (c *tenant) runsOnce(t *testing.T, dir string) {
	t.Helper()
	c.in(t, "rollout", "status", "deployment/web", "--timeout", transcript.WaitTimeout.String())
	c.in(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout", transcript.WaitTimeout.String())
	// Until kubelet has reported them, the Pods have the status of before the restart of the node.
	c.Until(t, "a Pod runs a command", transcript.Is("here"), "kubectl", "--kubeconfig", c.kubeconfig, "exec", "deployment/web", "--", "/app", "say", "here")
	found := map[string]int{}
	for _, line := range transcript.Left(dir) {
		for _, program := range []string{"kube-apiserver", "kubelet", "etcd"} {
			if strings.Contains(line, program+" --") {
				found[program]++
			}
		}
	}
	if fmt.Sprint(found) != "map[etcd:1 kube-apiserver:1 kubelet:1]" {
		t.Errorf("processes of %s: %v of %q", dir, found, transcript.Left(dir))
	}
}

// killedWhileRestored kills the manager at three steps of a restore of the Cluster, which has one real node. The next one completes it.
func (c *tenant) killedWhileRestored(t *testing.T, dir string) {
	t.Helper()
	c.cluster(t, "snapshot", "demo", "--name", "before", "--wait")
	for _, step := range []struct {
		name, component string
		ended           bool
	}{
		{"the cluster stops", "kube-apiserver", true},
		{"the API runs again", "kube-apiserver", false},
		{"the node runs again", "node", false},
	} {
		c.in(t, "create", "deployment", "later", "--image=app:v1")
		c.in(t, "rollout", "status", "deployment/later", "--timeout", transcript.WaitTimeout.String())
		pid, began := processIn(t, dir, step.component), time.Now()
		c.cluster(t, "restore", "demo", "--snapshot", "before", "--keep-current=false")
		c.killed(t, dir, step.component, pid, step.ended)
		requested := c.field(t, "cluster/demo", "{.spec.restore.requestedAt}")
		c.kubectl(t, "wait", "cluster/demo", "--for=jsonpath={.status.restore.requestedAt}="+requested, "--timeout", transcript.WaitTimeout.String())
		if got := c.field(t, "cluster/demo", "{.status.restore.result}"); got != "Succeeded" {
			t.Errorf("killed when %s: the restore is %s", step.name, got)
		}
		c.awaitCondition(t, "NodesReady")
		t.Logf("killed when %s: the nodes are ready after %v", step.name, time.Since(began).Round(time.Millisecond))
		c.runsOnce(t, dir)
		transcript.Eventually(t, "the Pods that the snapshot does not have are gone", func() bool {
			return c.in(t, "get", "deployments,replicasets,pods", "--selector=app=later", "-o", "name") == ""
		})
	}
}

// killedWhileForked kills the manager at steps of the creation of a fork with one real node, which the next one completes. Both
// have the same network of Services, so that the Cluster must be stopped.
func (c *tenant) killedWhileForked(t *testing.T) {
	t.Helper()
	c.cluster(t, "create", "fork", "--from", "before", "--nodes", "1")
	uid := c.field(t, "cluster/fork", "{.metadata.uid}")
	fork := &tenant{user: c.user, kubeconfig: filepath.Join(c.home, "fork.kubeconfig")}
	dir := filepath.Join(c.data, "clusters", uid)
	for _, component := range []string{"etcd", "kube-apiserver", "node"} {
		c.killed(t, dir, component, 0, false)
	}
	c.kubectl(t, "wait", "cluster/fork", "--for=condition=NodesReady", "--timeout", transcript.WaitTimeout.String())
	if err := os.WriteFile(fork.kubeconfig, []byte(c.cluster(t, "kubeconfig", "fork")), 0o600); err != nil {
		t.Fatal(err)
	}
	fork.OK(t, "keelson", "node", "image", "load", "--cluster", "fork", "--data-dir", c.data, "--name", "app:v1", c.image)
	fork.runsOnce(t, dir)
	c.cluster(t, "delete", "fork", "--wait")
	if left := transcript.Left(dir); len(left) > 0 {
		t.Errorf("left of the fork: %q", left)
	}
	c.kubectl(t, "delete", "clustersnapshot", "before")
}
