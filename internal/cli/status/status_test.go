package status

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) { env.Main(m) }

// The status reports a full etcd and the remedy, and the commands in docs/operations.md make it
// writable again.
func TestLongFullEtcd(t *testing.T) {
	dir := t.TempDir()
	cp := env.ControlPlane(t, controlplane.Options{
		Dir: dir, APIOnly: true, QuotaBytes: 16 << 20, StorageInterval: 100 * time.Millisecond,
	})
	if err := cp.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := status(t, dir); err != nil || strings.Contains(out, "alarm") {
		t.Fatalf("before: %v\n%s", err, out)
	}

	create := func(i int) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%d", i), Labels: map[string]string{"app": "not-needed"}},
			BinaryData: map[string][]byte{"data": bytes.Repeat([]byte("x"), 500_000)},
		}, metav1.CreateOptions{})
		return err
	}
	made := 0
	for err == nil {
		if err = create(made); err == nil {
			made++
		}
	}
	if !strings.Contains(err.Error(), "database space exceeded") || made < 10 {
		t.Fatalf("after %d objects: %v", made, err)
	}
	var out string
	harness.Eventually(t, "status reports the alarm", func() bool {
		out, err = status(t, dir)
		return errors.Is(err, usage.ErrSilent) && strings.Contains(out, "but etcd has an alarm.\n")
	})
	if !strings.Contains(out, "  etcd alarm  NOSPACE: the database of etcd has reached its quota") {
		t.Errorf("status is\n%s", out)
	}
	harness.Eventually(t, "the control plane reports the alarm, too", func() bool {
		return strings.HasPrefix(cp.Components()[0].Problem, "NOSPACE: ")
	})

	kubectl(t, cp, commands(t))
	harness.Eventually(t, "the alarm is cleared", func() bool {
		out, err = status(t, dir)
		return err == nil && !strings.Contains(out, "alarm") && cp.Components()[0].Problem == ""
	})
	if err := create(made); err != nil {
		t.Errorf("create an object afterwards: %v", err)
	}
}

// status runs the command.
func status(t *testing.T, dir string) (string, error) {
	t.Helper()
	cmd := New()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--data-dir", dir})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// commands returns the commands in docs/operations.md for a full etcd.
func commands(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### When etcd is full\n")
	_, block, _ := strings.Cut(section, "\n```sh\n")
	block, _, found := strings.Cut(block, "\n```\n")
	if !found {
		t.Fatal("docs/operations.md has no commands for a full etcd")
	}
	return block
}

// kubectl runs kubectl commands in a shell.
func kubectl(t *testing.T, cp *controlplane.ControlPlane, script string) {
	t.Helper()
	program, err := env.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cp.Kubeconfig(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	t.Logf("%s\n%s", script, out)
}
