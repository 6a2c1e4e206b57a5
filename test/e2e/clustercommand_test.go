package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A user creates a cluster, works in it, and deletes it, with a kubeconfig that has another context already.
func TestLongClusterByCommand(t *testing.T) {
	t.Parallel()
	s := clusterSession(t)
	s.Env["KUBECONFIG"] = filepath.Join(t.TempDir(), "config")
	const other = "other"
	s.OK(t, "kubectl", "config", "set-context", other)
	s.OK(t, "kubectl", "config", "use-context", other)
	keelson := func(verb string, args ...string) []string {
		return append([]string{"keelson", "cluster", verb, "--kubeconfig", kubeconfig}, args...)
	}
	created := s.Run(t, keelson("create", "by-command", "--deletion-protection", "--wait")...)
	if created.Code != 0 {
		t.Fatalf("create ended with %d", created.Code)
	}
	transcript.Contains(t, created.Stdout, "cluster/by-command created")
	transcript.Contains(t, created.Stderr, "by-command: Provisioning: Provisioned is False: The cluster is being provisioned", "keelson cluster kubeconfig by-command --kubeconfig=", "--merge")
	transcript.Contains(t, s.Fails(t, 1, keelson("create", "by-command")...), "Cluster by-command exists already")
	transcript.Contains(t, s.OK(t, keelson("list")...), "by-command", "Provisioned", "True", "https://127.0.0.1:")

	printed := filepath.Join(t.TempDir(), "printed")
	if err := os.WriteFile(printed, []byte(s.OK(t, keelson("kubeconfig", "by-command")...)), 0o600); err != nil {
		t.Fatal(err)
	}
	hasNode := func(nodes string) bool { return strings.Contains(nodes, "simulated-0") }
	s.Until(t, "the node is there", hasNode, "kubectl", "--kubeconfig", printed, "get", "nodes")
	transcript.Contains(t, s.OK(t, keelson("kubeconfig", "by-command", "--merge")...), "The current context is keelson-by-command")
	transcript.Contains(t, s.OK(t, "kubectl", "get", "nodes"), "simulated-0")
	transcript.Contains(t, s.OK(t, keelson("kubeconfig", "by-command", "--via-proxy")...), "/apis/access.cloudnative.tw/v1alpha1/clusters/by-command/proxy")

	if webhook != "" { // otherwise the policies may be missing, too
		transcript.Contains(t, s.Fails(t, 1, keelson("delete", "by-command")...), "deletionProtection")
	}
	s.OK(t, "kubectl", "--kubeconfig", kubeconfig, "patch", "cluster", "by-command", "--type=merge", "-p", `{"spec":{"deletionProtection":false}}`)
	s.OK(t, keelson("delete", "by-command", "--wait")...)
	if left := s.OK(t, "kubectl", "config", "get-contexts", "-o", "name"); strings.TrimSpace(left) != other {
		t.Errorf("contexts after the deletion: %s", left)
	}
	transcript.Contains(t, s.Fails(t, 1, keelson("delete", "by-command")...), `there is no Cluster "by-command"`)
}
