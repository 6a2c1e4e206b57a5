//go:build linux

package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongNodeWithoutIptables is a node on a machine with nft only.
func TestLongNodeWithoutIptables(t *testing.T) {
	if len(places([]string{"nft"})) == 0 {
		t.Skip("SKIP: this machine has no nft: `hack/require.sh nft` installs it")
	}
	u := newUser(t)
	u.without = []string{"iptables"}
	u.steps(t, []step{
		{"it is ready, and is reported as real", up},
		{"it uses nft", hasNft},
		{"an image is loaded", func(t *testing.T, u *user) { u.loadApp(t, "v1") }},
		{"a Pod runs, with logs, exec and port-forward", runPod},
		{"a Pod reaches the API with its token", reachAPI},
		{"a Pod reaches this machine", reachMachine},
		{"a Pod reaches other networks as this machine", reachOut},
		{"responses reach all addresses of this machine", answerMachine},
		{"a Pod has a port of the node", hostPort},
		{"the containers of a Foo respond through a Service", foo},
		{"down leaves nothing, up has the Pods again", downAndUp},
	})
}

// hasNft checks that the node has created its rules with nft.
func hasNft(t *testing.T, u *user) {
	settings, err := os.ReadFile(filepath.Join(node.Dir(u.data, 0), "settings.json"))
	if err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, string(settings), `"proxyMode": "nftables"`)
	network := fmt.Sprintf("--net=/proc/%d/ns/net", u.component(t, "kube-proxy"))
	transcript.Eventually(t, "the rules of the node and of kube-proxy exist", func() bool { // kube-proxy creates its rules late
		out, err := exec.Command("nsenter", network, "nft", "list", "tables").CombinedOutput()
		if err != nil {
			t.Fatalf("nft in the network of the node: %v\n%s", err, out)
		}
		return strings.Contains(string(out), "table ip kube-proxy\n") && strings.Contains(string(out), "table ip keelson\n")
	})
}

// okWithout runs a command that must succeed where some programs are not installed: in a mount
// namespace that hides them behind a file that is not executable.
func (u *user) okWithout(t *testing.T, words []string) string {
	t.Helper()
	const hide = `while [ "$1" != -- ]; do mount --bind /dev/null "$1"; shift; done; shift; exec "$@"`
	plain := u.Command(t.Context(), t, words...)
	args := slices.Concat([]string{"--mount", "sh", "-ec", hide, "sh"}, places(u.without), []string{"--"}, plain.Args)
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = plain.Env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Logf("$ %s  # without %s\n%s%s", strings.Join(words, " "), strings.Join(u.without, ", "), &stdout, &stderr)
	if err != nil {
		t.Fatalf("$ %s: %v", strings.Join(words, " "), err)
	}
	return stdout.String()
}

// places returns the paths of programs by name, without duplicates.
func places(names []string) (found []string) {
	for _, name := range names {
		for _, folder := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			path, err := filepath.EvalSymlinks(filepath.Join(folder, name))
			if err == nil && !slices.Contains(found, path) {
				found = append(found, path)
			}
		}
	}
	return found
}
