package manager

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// writeKubeconfig returns a file with which another program reaches the same API server.
func writeKubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{
		Server: cfg.Host, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
		InsecureSkipTLSVerify: cfg.Insecure,
	}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificate: cfg.CertFile, ClientCertificateData: cfg.CertData,
		ClientKey: cfg.KeyFile, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken,
	}
	kubeconfig.Contexts["other"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// The command runs every controller of this build with the permissions of an
// administrator, serves its endpoints, and ends without an error when it is told to.
func TestManagerCommand(t *testing.T) {
	kubeconfig := writeKubeconfig(t, env.Config(t))
	namespace := env.Namespace(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs, stderr := io.Pipe()

	cmd := New()
	cmd.SetArgs([]string{
		"--kubeconfig=" + kubeconfig, "--context=other", "--namespaces=" + namespace,
		"--leader-elect", "--lease-lock-namespace=" + namespace, "--logging-format=json",
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
	})
	cmd.SetErr(stderr)
	result := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = stderr.Close() // ends the scan below; a PipeWriter never fails to close
		result <- err
	}()

	var health string
	ready := false
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		var entry struct{ Level, Msg, Health string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Errorf("a log line that is no JSON: %s", lines.Text())
		}
		if entry.Level == "ERROR" {
			t.Errorf("an error in the logs: %s", lines.Text())
		}
		if entry.Health != "" {
			health = entry.Health
		}
		if entry.Msg == "Manager is ready" {
			ready = true
			response, err := http.Get("http://" + health + "/readyz")
			if err != nil {
				t.Errorf("get /readyz: %v", err)
			} else if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
				t.Errorf("/readyz: got %s", response.Status)
			}
			stop()
		}
	}
	if !ready {
		t.Error("the manager never said that it is ready")
	}
	if err := <-result; err != nil {
		t.Errorf("the command ended with: %v", err)
	}
}
