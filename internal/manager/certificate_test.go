package manager

import (
	"bytes"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/keelson-dev/keelson/internal/controller/kubeconfig"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/await"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// A manager of `keelson up` works on when the certificate has expired that it started with: for new requests, and in
// watches. The certificates are renewed before, by the clock of the control plane; that of its components, and so what
// has expired, is the machine's.
func TestLongManagerOutlivesItsCertificate(t *testing.T) {
	const year = 365 * 24 * time.Hour // the lifetime of a client certificate
	const left = harness.WaitTimeout  // of it when the control plane starts: the manager must start within it
	clock := clocktesting.NewFakeClock(time.Now().Add(left - year))
	cp := env.ControlPlane(t, controlplane.Options{Nodes: 1, Clock: clock})
	c := runEverything(t, cp, newTestLogger(t))

	harness.Eventually(t, "the renewal waits for its time", clock.HasWaiters)
	crt, key := read(t, cp.Config().CertFile), read(t, cp.Config().KeyFile)
	clock.Step(year - left)
	harness.Eventually(t, "the certificate is renewed", func() bool { return !bytes.Equal(read(t, cp.Config().CertFile), crt) })
	// They look for a renewed certificate every five minutes only, which is too long for a test.
	for _, component := range cp.Components() {
		if slices.Contains([]string{"kube-controller-manager", "kube-scheduler", "kwok"}, component.Name) {
			signals.Send(t, component.Status.PID, syscall.SIGKILL)
		}
	}
	first := cp.Config()
	first.CertFile, first.KeyFile, first.CertData, first.KeyData = "", "", crt, key
	await.Until(t, left+harness.WaitTimeout, "the first certificate is refused", func() bool {
		client, err := kubernetes.NewForConfig(first)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Discovery().ServerVersion()
		return apierrors.IsUnauthorized(err)
	})
	all := examples()
	for _, controller := range controllers {
		if controller.Name == kubeconfig.Name {
			continue // the one of the Cluster
		}
		if err := c.Create(t.Context(), all[controller.Name].ready); err != nil {
			t.Fatalf("create an object for the controller %s: %v", controller.Name, err)
		}
	}
	for _, controller := range controllers {
		t.Run(controller.Name, func(t *testing.T) { all[controller.Name].becomesReady(t, c) })
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
