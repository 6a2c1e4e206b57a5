//go:build linux

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongNodePage runs the commands of docs/node.md.
func TestLongNodePage(t *testing.T) {
	u := newUser(t)
	u.data = filepath.Join(u.home, ".local", "share", "keelson") // the default
	u.before = traces(t, u.data)
	script := strings.Join(transcript.Commands(t, filepath.Join("..", "..", "..", "docs", "node.md")), "")
	transcript.Contains(t, u.Script(t, t.TempDir(), script), "keelson-node ", "docker.io/library/hello:v1 ", "\nkeelson ")
}

// awaitSmallRequests waits until the policy of env.SmallRequests is in force.
const awaitSmallRequests = `until kubectl create --dry-run=server -o yaml -f - <<EOF | grep -q 20m
{apiVersion: v1, kind: Pod, metadata: {name: trial}, spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 1}}}]}}
EOF
do :; done
`

// TestLongManyNodesPage runs the commands of docs/many-nodes.md.
func TestLongManyNodesPage(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	u := newUser(t)
	u.data = filepath.Join(u.home, ".local", "share", "keelson") // the default
	u.before = traces(t, u.data)
	blocks := transcript.Commands(t, filepath.Join("..", "..", "..", "docs", "many-nodes.md"))
	// The page needs more processors than a machine that runs tests may have.
	blocks[0] += "kubectl apply -f - <<EOF\n" + env.SmallRequests(20) + "EOF\n" + awaitSmallRequests
	folder := t.TempDir()
	buildLauncher(t, filepath.Join(folder, "bin", "launcher"))
	if err := os.Symlink(builtGuest(t), filepath.Join(folder, "bin", "guest")); err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, u.Script(t, folder, strings.Join(blocks, "")), "virtualmachine.cloudnative.tw/web condition met\n", "three cups\n", "keelson-node-3   Off", "node/keelson-node-3 started\n",
		"node/keelson-node-4 added\n", "node/keelson-node-2 removed\n", "keelson-node-4   On", "is deleted.")
}
