package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// asProgram is the environment variable that makes the test binary run the program.
const asProgram = "KEELSON_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	env.Main(m)
}

// program returns a command that runs the program in its own process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// writeKubeconfig writes a kubeconfig for the API server, for another user if one is given.
func writeKubeconfig(t *testing.T, cfg *rest.Config, user string) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{
		Server: cfg.Host, CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
		InsecureSkipTLSVerify: cfg.Insecure,
	}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificate: cfg.CertFile, ClientCertificateData: cfg.CertData,
		ClientKey: cfg.KeyFile, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken, Impersonate: user,
	}
	kubeconfig.Contexts["other"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// entry is the relevant part of a log line.
type entry struct{ Level, Msg, Health string }

// awaitReady reads the log until the manager is ready, and returns its health address.
func awaitReady(t *testing.T, lines *bufio.Scanner) (health string) {
	t.Helper()
	for lines.Scan() {
		line := parse(t, lines.Bytes())
		if line.Health != "" {
			health = line.Health
		}
		if line.Msg == "Manager is ready" {
			return health
		}
	}
	t.Fatal("the manager did not become ready")
	return ""
}

func parse(t *testing.T, raw []byte) entry {
	t.Helper()
	var line entry
	if err := json.Unmarshal(raw, &line); err != nil {
		t.Errorf("invalid JSON in the log: %s", raw)
	}
	if line.Level == "ERROR" {
		t.Errorf("an error in the log: %s", raw)
	}
	return line
}

// The manager runs every controller of this build and serves its health endpoint. On SIGTERM it
// releases its lease and exits with 0.
func TestManagerStopsOnSIGTERM(t *testing.T) {
	cfg := env.Config(t)
	namespace := env.Namespace(t)
	cmd := program(t, "manager", "--kubeconfig="+writeKubeconfig(t, cfg, ""), "--context=other", "--namespaces="+namespace,
		"--leader-elect", "--holder-identity=me", "--lease-lock-namespace="+namespace, "--logging-format=json",
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	health := awaitReady(t, lines)
	response, err := http.Get("http://" + health + "/readyz")
	if err != nil {
		t.Errorf("get /readyz: %v", err)
	} else {
		if response.StatusCode != http.StatusOK {
			t.Errorf("/readyz: got %s", response.Status)
		}
		if err := response.Body.Close(); err != nil {
			t.Errorf("read /readyz: %v", err)
		}
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var last entry
	for lines.Scan() {
		last = parse(t, lines.Bytes())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want exit code 0", err)
	}
	if last.Msg != "Manager has stopped" {
		t.Errorf("the last line of the log is %q, want \"Manager has stopped\"", last.Msg)
	}
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Leases(namespace).Get(t.Context(), "keelson", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("read the lease: %v", err)
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != "" {
		t.Errorf("the lease was not released: %+v", lease.Spec)
	}
}

// A manager without permissions exits with 1 and a single message, without errors of failed
// watches.
func TestManagerWithoutPermissionsSaysSoOnce(t *testing.T) {
	namespace := env.Namespace(t)
	cmd := program(t, "manager", "--kubeconfig="+writeKubeconfig(t, env.Config(t), "nobody-of-"+namespace), "--context=other",
		"--namespaces="+namespace)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit code 1", err)
	}
	text := stderr.String()
	if !strings.HasPrefix(text, "error: user \"nobody-of-"+namespace+"\" of the API server ") ||
		strings.Count(text, "lacks permissions") != 1 || strings.Contains(text, "level=") {
		t.Errorf("want only the message of the preflight, got:\n%s", text)
	}
	if stdout.Len() > 0 {
		t.Errorf("standard output of a failed command: %s", &stdout)
	}
}
