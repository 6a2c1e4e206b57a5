//go:build linux

package node

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongNodePage runs the commands of docs/node.md and docs/node-network.md.
func TestLongNodePage(t *testing.T) {
	u := newUser(t)
	u.data = filepath.Join(u.home, ".local", "share", "keelson") // the default
	u.before = traces(t, u.data)
	var blocks []string
	for _, page := range []string{"node.md", "node-network.md"} {
		blocks = append(blocks, transcript.Commands(t, filepath.Join("..", "..", "..", "docs", page))...)
	}
	transcript.Contains(t, u.Script(t, t.TempDir(), strings.Join(blocks, "")), "keelson-node ", "docker.io/library/hello:v1 ", "\nkeelson ")
}

// TestLongManyNodesPage runs the commands of docs/many-nodes.md.
func TestLongManyNodesPage(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	u := newUser(t)
	u.data = filepath.Join(u.home, ".local", "share", "keelson") // the default
	u.before = traces(t, u.data)
	blocks := transcript.Commands(t, filepath.Join("..", "..", "..", "docs", "many-nodes.md"))
	transcript.Contains(t, u.Script(t, t.TempDir(), strings.Join(blocks, "")), "virtualmachine.cloudnative.tw/web condition met\n", "three cups\n", "keelson-node-3   Off", "node/keelson-node-3 started\n",
		"node/keelson-node-4 added\n", "node/keelson-node-2 removed\n", "keelson-node-4   On", "is deleted.")
}
