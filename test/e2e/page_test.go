package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// TestLongClusterPage runs the commands of docs/cluster.md in their order.
func TestLongClusterPage(t *testing.T) {
	s := clusterSession(t)
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Fatalf("the page has %d blocks of commands", len(blocks))
	}
	dir := t.TempDir()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	// Files of a user who migrates from RKE.
	config := "nodes:\n- {address: 127.0.0.1, user: ops, role: [controlplane, worker, etcd]}\n"
	if err := os.WriteFile(filepath.Join(dir, "cluster.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl, err := env.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		cmd := exec.CommandContext(t.Context(), "sh", "-eux")
		cmd.Stdin = strings.NewReader(block[1])
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + s.Env["HOME"], "KUBECONFIG=" + s.Env["KUBECONFIG"], "PATH=" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH")}
		output, err := cmd.CombinedOutput()
		t.Logf("%s", output)
		if err != nil {
			t.Fatalf("%v in\n%s", err, block[1])
		}
	}
	s.kubectl(t, "delete", "cluster", "demo", "taken-over")
}
