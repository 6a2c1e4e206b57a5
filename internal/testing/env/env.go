// Package env gives tests a real API server with Keelson's CRDs.
//
// It is, in this order:
//   - the API server of the kubeconfig in KEELSON_TEST_KUBECONFIG: one that the command internal/testing/env/run
//     started for a whole test run, or any other cluster.
//   - otherwise one that the tests of a package start from bin/keelson-kube, in about two seconds, and stop at the end.
//
// Tests share the server, so each uses its own Namespace.
package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/config/admission"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/install"
	_ "github.com/keelson-dev/keelson/internal/process/shim" // the test binary is also the shim of its child processes
)

// KubeconfigVariable is the environment variable with the kubeconfig of the API server.
const KubeconfigVariable = "KEELSON_TEST_KUBECONFIG"

// shared is the API server of this test binary.
var shared struct {
	once   sync.Once
	config *rest.Config
	stop   func() error
	err    error
}

// Main runs the tests of a package and stops the API server, if one was started. after releases
// other resources that the tests share. Call it from TestMain:
//
// func TestMain(m *testing.M) { env.Main(m) }
func Main(m *testing.M, after ...func()) {
	code := m.Run()
	for _, do := range after {
		do()
	}
	if shared.stop != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the API server of the tests: %v\n", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Config returns the administrator's configuration of the API server, and starts it at the first
// call.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	shared.once.Do(func() { shared.config, shared.stop, shared.err = start() })
	if shared.err != nil {
		t.Fatalf("No API server for this test: %v", shared.err)
	}
	return rest.CopyConfig(shared.config)
}

// Own returns the administrator's configuration of a private API server, for tests that replace
// CRDs. It has none of Keelson's. It stops at the end of the test.
func Own(t testing.TB) *rest.Config {
	t.Helper()
	return ControlPlane(t, controlplane.Options{APIOnly: true}).Config()
}

// ControlPlane starts a private control plane, see StartControlPlane. It has none of Keelson's
// CRDs. It stops at the end of the test.
func ControlPlane(t testing.TB, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, stop, err := StartControlPlane(t.Context(), opts)
	if err != nil {
		t.Fatalf("No control plane for this test: %v", err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Stop the control plane of this test: %v", err)
		}
	})
	return cp
}

// Define installs the CRDs of all kinds.
func Define(t testing.TB, config *rest.Config) {
	t.Helper()
	if err := define(t.Context(), config); err != nil {
		t.Fatalf("Install the CRDs: %v", err)
	}
}

func define(ctx context.Context, config *rest.Config) error {
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	return install.CRDs(ctx, config, definitions)
}

// Namespace returns the name of a new namespace. It is deleted at the end of the test.
func Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(Config(t))
	if err != nil {
		t.Fatal(err)
	}
	created, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Create a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := client.CoreV1().Namespaces().Delete(ctx, created.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("Delete the namespace %s: %v", created.Name, err)
		}
	})
	return created.Name
}

// start connects to the API server from the environment, or starts one.
func start() (*rest.Config, func() error, error) {
	if path := os.Getenv(KubeconfigVariable); path != "" {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", KubeconfigVariable, err)
		}
		config.QPS = -1
		return config, nil, installDefinitions(config)
	}
	cp, stop, err := StartControlPlane(context.Background(), controlplane.Options{APIOnly: true})
	if err != nil {
		return nil, nil, err
	}
	config := cp.Config()
	return config, stop, installDefinitions(config)
}

func installDefinitions(config *rest.Config) error {
	if err := define(context.Background(), config); err != nil {
		return err
	}
	policies, err := admission.All()
	if err != nil {
		return err
	}
	return install.Policies(context.Background(), config, policies)
}

// StartControlPlane starts a control plane for tests: ephemeral, from bin/keelson-kube, in a
// temporary directory unless opts names one. The returned function stops it and removes the
// directory.
func StartControlPlane(ctx context.Context, opts controlplane.Options) (*controlplane.ControlPlane, func() error, error) {
	binary, err := Binary("keelson-kube")
	if err != nil {
		return nil, nil, err
	}
	if opts.Dir == "" {
		if opts.Dir, err = os.MkdirTemp("", "keelson-test-"); err != nil {
			return nil, nil, err
		}
	}
	opts.Binary, opts.Ephemeral = binary, true
	cp, err := controlplane.Start(ctx, opts)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(opts.Dir))
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return errors.Join(cp.Stop(ctx), os.RemoveAll(opts.Dir))
	}
	return cp, stop, nil
}

// Root returns the folder of the repository: the first one with the go.mod of this module, above the folder in which the program was
// started. Tests start in the folder of their package.
var Root = sync.OnceValues(func() (string, error) {
	for dir := started; ; dir = filepath.Dir(dir) {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(text, []byte("module github.com/keelson-dev/keelson\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%q is not in the repository", started)
		}
	}
})

// started is the folder in which the program was started; a test may change it.
var started, _ = os.Getwd()

// Binary returns the path of a program in bin/, the output of make build.
func Binary(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not built (%w): run make build", name, err)
	}
	return path, nil
}
