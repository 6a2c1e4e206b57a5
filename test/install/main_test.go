// Package install tests the installation in a cluster: that it can be applied and is admitted
// unchanged, and that it grants exactly the permissions that the controllers use.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(engineDir); dir != "" {
		fmt.Fprintln(os.Stderr, becomeEngine(dir)) // returns only on failure
		os.Exit(1)
	}
	env.Main(m, func() { _ = os.RemoveAll(built.dir) })
}

// world is a cluster with simulated nodes, whose API server audits service accounts.
type world struct {
	transcript.Shell
	dir   string
	admin *rest.Config
	// failed is what failed in another process. It is logged last, after the output of the manager.
	failed []string
}

// auditPolicy records the bodies of writes, because they contain the owners, except for Secrets.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
  resources: [{group: "", resources: [secrets]}, {group: authorization.k8s.io}, {group: authentication.k8s.io}]
- level: Request
  userGroups: ["system:serviceaccounts"]
  verbs: [create, patch, update]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// newWorld starts a cluster with additional API server flags. It stops at the end of the test.
func newWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{dir: dir}
	t.Cleanup(func() {
		for _, why := range w.failed {
			t.Log(why)
		}
	})
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := env.ControlPlane(t, controlplane.Options{
		Nodes: 2,
		APIServerArgs: append([]string{
			"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(dir, "audit.log"),
			// There is no kube-proxy: the access API is reached at the endpoint of its Service.
			"--enable-aggregator-routing=true",
		}, flags...),
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("not within a minute"))
	defer cancel()
	if err := cp.Settle(ctx); err != nil {
		t.Fatalf("Wait for the cluster: %v", err)
	}
	w.Shell, w.admin = transcript.Shell{Env: map[string]string{"KUBECONFIG": cp.Kubeconfig(), "HOME": dir}}, cp.Config()
	return w
}

// kubectl runs a command that must succeed and returns its output.
func (w *world) kubectl(t *testing.T, words ...string) string {
	t.Helper()
	return w.OK(t, append([]string{"kubectl"}, words...)...)
}

func (w *world) kustomize(t *testing.T, dir string) string {
	t.Helper()
	return w.OK(transcript.Quietly(t), "kubectl", "kustomize", dir) // the CRDs are long
}

func (w *world) apply(t *testing.T, manifests string, words ...string) string {
	t.Helper()
	s := w.Shell
	s.Stdin = manifests
	return s.OK(t, append([]string{"kubectl", "apply", "--server-side", "-f", "-"}, words...)...)
}

// namespace creates a namespace.
func (w *world) namespace(t *testing.T, name string) {
	t.Helper()
	w.apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name))
}

// kubeconfigOf writes a kubeconfig with a token of a service account, for access through a gate,
// and returns its path.
func (w *world) kubeconfigOf(t *testing.T, g *gate, namespace, account string) string {
	t.Helper()
	token := transcript.Quietly(t) // keeps the token out of the log
	user := &clientcmdapi.AuthInfo{Token: w.OK(token, "kubectl", "create", "token", account, "--namespace", namespace, "--duration", "2h")}
	path := filepath.Join(w.dir, namespace+"."+account+".kubeconfig")
	writeKubeconfig(t, path, "default", g.cluster, user)
	return path
}

func writeKubeconfig(t *testing.T, path, namespace string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
	t.Helper()
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"user": user},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "user", Namespace: namespace}},
		CurrentContext: "test",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
}
