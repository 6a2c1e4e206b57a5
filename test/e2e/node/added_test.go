//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// added adds a fourth node, on which Pods run.
func added(t *testing.T, u *user) {
	fourth := node.Name(3)
	transcript.Contains(t, u.Fails(t, 1, "keelson", "node", "add", "web", "--data-dir", u.data), "a real node cannot be named web")
	transcript.Contains(t, u.Fails(t, 1, "keelson", "node", "remove", node.Name(0), "--data-dir", u.data), "it is the first node")
	before := u.running(t)
	if got := u.keelsonNode(t, "add"); got != "node/"+fourth+" added\n" {
		t.Errorf("got %q", got)
	}
	u.loadApp(t, "v1")
	u.kubectl(t, "rollout", "status", "daemonset/web", "--timeout", transcript.WaitTimeout.String())
	pod, address := u.podOn(t, fourth)
	first, _ := u.podOn(t, node.Name(0))
	for _, pair := range [][2]string{{first, "http://" + address + ":8080"}, {pod, "http://web"}} {
		u.Until(t, pair[0]+" reaches "+pair[1], answersOK, "kubectl", "exec", pair[0], "--", "/app", "get", pair[1])
	}
	for name, life := range before {
		if after := u.running(t)[name]; after != life {
			t.Errorf("%s was %+v before, and is %+v", name, life, after)
		}
	}
}

// removed removes the fourth node, and then the second one with a volume, whose place a new node gets.
func removed(t *testing.T, u *user) {
	fourth := node.Name(3)
	u.apply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: alone}\nspec: {nodeName: %s, containers: [{name: app, image: \"app:v1\"}]}\n", fourth))
	transcript.Contains(t, u.Fails(t, 1, "keelson", "node", "remove", fourth, "--data-dir", u.data), "no controller would replace pod/alone of namespace default")
	u.kubectl(t, "delete", "pod", "alone")
	if users := u.layerUsers(t); slices.Max(users) != 4 {
		t.Errorf("of 4 nodes, these use the shared layers: %v", users)
	}
	if got := u.keelsonNode(t, "remove", fourth); got != "node/"+fourth+" removed\n" {
		t.Errorf("got %q", got)
	}
	u.hasNothingOf(t, 3)
	u.removedThroughKills(t, 1)
	if users := u.layerUsers(t); slices.Max(users) != 2 {
		t.Errorf("of 2 nodes, these use the shared layers: %v", users)
	}
	transcript.Contains(t, u.keelsonNode(t, "list"), "keelson-node     On", "keelson-node-3   On")
	if got := u.keelsonNode(t, "add"); got != "node/"+node.Name(1)+" added\n" {
		t.Errorf("got %q", got)
	}
	u.loadApp(t, "v1")
	u.kubectl(t, "rollout", "status", "daemonset/web", "--timeout", transcript.WaitTimeout.String())
	reachAcross(t, u)
}

// hasNothingOf checks that nothing is left of a node that was removed.
func (u *user) hasNothingOf(t *testing.T, index int) {
	t.Helper()
	name := node.Name(index)
	u.kubectl(t, "wait", "--for=condition=Available", "deployment/shop", "--timeout", transcript.WaitTimeout.String())
	u.Until(t, "its Lease is gone", func(out string) bool { return !strings.Contains(out, name+"\n") }, "kubectl", "get", "leases", "-n", "kube-node-lease", "-o", "name")
	u.Until(t, "its Pods are gone", transcript.Is(""), "kubectl", "get", "pods", "--field-selector", "spec.nodeName="+name, "-o", "name")
	for _, path := range []string{
		node.Dir(u.data, index), node.Dir(u.data, index) + ".remove", filepath.Join(u.data, "peers", fmt.Sprint(index)+".json"),
		filepath.Join(u.data, "pki", fmt.Sprintf("kubelet-%d.key", index+1)),
	} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	// Of the links to other nodes, both ends are gone, with their routes.
	first := fmt.Sprint(u.inner(t, 0))
	transcript.Eventually(t, "no link leads to it", func() bool {
		out, err := exec.Command("nsenter", "--target", first, "--net", "ip", "route").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return !strings.Contains(string(out), fmt.Sprintf("peer-%d ", index))
	})
}
