//go:build linux

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// tenant is a user of a Cluster.
type tenant struct {
	*user
	kubeconfig string
	image      string // folder of the image app:v1
}

// in runs kubectl in the Cluster.
func (c *tenant) in(t *testing.T, words ...string) string {
	t.Helper()
	return c.OK(t, append([]string{"kubectl", "--kubeconfig", c.kubeconfig}, words...)...)
}

// cluster runs a command of keelson cluster.
func (c *tenant) cluster(t *testing.T, words ...string) string {
	t.Helper()
	return c.OK(t, append(append([]string{"keelson", "cluster"}, words...), "--data-dir", c.data)...)
}

// start starts the manager.
func (c *tenant) start(t *testing.T) {
	t.Helper()
	c.OK(t, "keelson", "up", "--detach", "--node=simulated", "--vm-driver=fake", "--data-dir", c.data)
}

// patchSpec changes the spec of the Cluster, and waits until the controller has seen it.
func (c *tenant) patchSpec(t *testing.T, spec string) {
	t.Helper()
	c.kubectl(t, "patch", "cluster", "demo", "--type=merge", "-p", `{"spec":`+spec+`}`)
	generation := c.field(t, "cluster/demo", "{.metadata.generation}")
	c.kubectl(t, "wait", "cluster/demo", "--for=jsonpath={.status.observedGeneration}="+generation, "--timeout", transcript.WaitTimeout.String())
}

func (c *tenant) awaitCondition(t *testing.T, condition string) {
	t.Helper()
	c.kubectl(t, "wait", "cluster/demo", "--for=condition="+condition, "--timeout", transcript.WaitTimeout.String())
}

// resize sets the number of real nodes, and waits until they are ready.
func (c *tenant) resize(t *testing.T, real int) {
	t.Helper()
	c.patchSpec(t, fmt.Sprintf(`{"nodes":{"real":%d}}`, real))
	c.awaitCondition(t, "NodesReady")
	var want []string
	for index := range real {
		want = append(want, node.Name(index))
	}
	if got := strings.Fields(c.in(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")); !slices.Equal(got, want) {
		t.Errorf("the nodes are %q, want %q", got, want)
	}
}

// refusesToLose checks that no node is removed with a Pod that nobody would make again.
func (c *tenant) refusesToLose(t *testing.T) {
	t.Helper()
	second := node.Name(1)
	c.in(t, "run", "alone", "--image=app:v1", "--overrides", `{"spec":{"nodeName":"`+second+`"}}`)
	c.in(t, "wait", "--for=condition=Ready", "pod/alone", "--timeout", transcript.WaitTimeout.String())
	c.kubectl(t, "patch", "cluster", "demo", "--type=merge", "-p", `{"spec":{"nodes":{"real":1}}}`)
	transcript.Eventually(t, "the removal is refused", func() bool {
		return strings.Contains(c.field(t, "cluster/demo", "{.status.message}"), "no controller would replace pod/alone of namespace default")
	})
	transcript.Contains(t, c.in(t, "get", "nodes", second), " Ready")
	c.in(t, "delete", "pod", "alone", "--now")
}

// returnsToANode checks that a node gets Pods again whose removal was begun and is not wanted any more.
func (c *tenant) returnsToANode(t *testing.T) {
	t.Helper()
	second, third := node.Name(1), node.Name(2)
	c.in(t, "create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=4")
	c.in(t, "cordon", third)
	c.kubectl(t, "patch", "cluster", "demo", "--type=merge", "-p", `{"spec":{"nodes":{"real":1}}}`)
	unschedulable := func(name string) string { return c.in(t, "get", "node", name, "-o", "jsonpath={.spec.unschedulable}") }
	transcript.Eventually(t, "the node is drained", func() bool { return unschedulable(second) == "true" })
	began := time.Now()
	c.resize(t, 3)
	t.Logf("the nodes are wanted again and ready after %v", time.Since(began).Round(time.Millisecond))
	transcript.Eventually(t, "the node gets Pods again", func() bool { return unschedulable(second) == "" })
	if unschedulable(third) != "true" {
		t.Error("the node that a user has cordoned is schedulable")
	}
	c.in(t, "uncordon", third)
	c.in(t, "delete", "poddisruptionbudget", "web")
}

// TestSmokeClusterNodes is the life of a Cluster with real nodes, which run Pods.
func TestSmokeClusterNodes(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	c := &tenant{user: newUser(t)}
	c.kubeconfig = filepath.Join(c.home, "demo.kubeconfig")
	c.start(t)
	c.image = t.TempDir()
	buildApp(t, c.image, "v1")

	began := time.Now()
	c.cluster(t, "create", "demo", "--nodes", "2", "--wait", "--timeout", transcript.WaitTimeout.String())
	t.Logf("its nodes are ready after %v", time.Since(began).Round(time.Millisecond))
	dir := filepath.Join(c.data, "clusters", c.field(t, "cluster/demo", "{.metadata.uid}"))

	if err := os.WriteFile(c.kubeconfig, []byte(c.cluster(t, "kubeconfig", "demo")), 0o600); err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, c.OK(t, "keelson", "node", "image", "load", "--cluster", "demo", "--data-dir", c.data, "--name", "app:v1", c.image), "docker.io/library/app:v1\n")
	c.in(t, "create", "deployment", "web", "--image=app:v1", "--replicas=4")
	c.in(t, "rollout", "status", "deployment/web", "--timeout", transcript.WaitTimeout.String())
	t.Logf("its Pods run after %v", time.Since(began).Round(time.Millisecond))
	on := strings.Fields(c.in(t, "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"))
	slices.Sort(on)
	if on = slices.Compact(on); len(on) != 2 {
		t.Errorf("the Pods are on %q", on)
	}
	if users := c.layerUsers(t); len(users) != 2 || slices.Min(users) != 2 { // of the image, and of pause
		t.Errorf("of 2 nodes, these use the shared layers: %v", users)
	}
	c.in(t, "expose", "deployment", "web", "--port=80", "--target-port=8080")
	address := c.in(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	responds := func() bool {
		answer, err := tryGet("http://" + address)
		return err == nil && strings.HasPrefix(answer, "v1 on web-")
	}
	transcript.Eventually(t, "the Service responds", responds)
	transcript.Contains(t, c.in(t, "logs", "deployment/web"), "serving v1")

	restarts := func() string {
		return c.in(t, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	}
	was := restarts()
	c.killManager(t)
	transcript.Contains(t, c.in(t, "exec", "deployment/web", "--", "/app", "say", "here"), "here")
	c.start(t)
	c.awaitCondition(t, "NodesReady")
	if is := restarts(); is != was {
		t.Errorf("restarts of the containers: %s, and %s before the manager was killed", is, was)
	}

	c.resize(t, 3)
	c.refusesToLose(t)
	c.returnsToANode(t)
	c.resize(t, 1)
	c.in(t, "rollout", "status", "deployment/web", "--timeout", transcript.WaitTimeout.String())
	c.in(t, "wait", "--for=condition=Ready=True", "node/keelson-node", "--timeout", transcript.WaitTimeout.String())

	c.killedWhileRestored(t, dir)
	c.patchSpec(t, `{"running":false}`)
	c.kubectl(t, "wait", "cluster/demo", "--for=jsonpath={.status.phase}=Stopped", "--timeout", transcript.WaitTimeout.String())
	if left := transcript.Left(dir); len(left) > 0 {
		t.Errorf("processes of the stopped Cluster: %q", left)
	}
	c.killedWhileForked(t)
	c.patchSpec(t, `{"running":true}`)
	c.awaitCondition(t, "NodesReady")
	transcript.Eventually(t, "the Service responds after a stop", responds)

	ids := nodeIDs(t, dir)
	if len(ids) != 3 {
		t.Fatalf("IDs of nodes: %q", ids)
	}
	began = time.Now()
	c.cluster(t, "delete", "demo", "--wait")
	t.Logf("it is deleted after %v", time.Since(began).Round(time.Millisecond))
	if users := c.layerUsers(t); len(users) > 0 {
		t.Errorf("the layers of images are left, with %v users", users)
	}
	left := transcript.Left(dir)
	for _, id := range ids {
		for _, pattern := range []string{"/sys/class/net/kn-" + id, "/sys/fs/cgroup/*/keelson-" + id, "/sys/fs/cgroup/keelson-" + id, dir} {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, paths...)
		}
	}
	if len(left) > 0 {
		t.Errorf("left of the Cluster: %q", left)
	}
}
