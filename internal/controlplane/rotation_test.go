package controlplane_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// TestLongKilledRotationIsContinued kills the program that rotates the client certificates at one moment after the other. In the end
// there is one new generation, the old kubeconfig works until the overlap is over, and not after it, and every component works.
func TestLongKilledRotationIsContinued(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	args := helperArgs{Dir: dir, Binary: binary, Nodes: 1}
	h := startHelper(t, args)
	h.mustBeReady(t)
	leaked := kubeconfigOf(t, dir)
	h.kill()

	args.Rotation = "leaked"
	for _, step := range slices.Concat([]string{"certificates begun"}, coreSteps[2:]) {
		args.KillAt = step
		startHelper(t, args).mustKillItself(t)
	}

	fakeClock := clocktesting.NewFakeClock(time.Now())
	opts := controlplane.Options{Dir: dir, Binary: binary, Nodes: 1, Rotation: "leaked", RotationOverlap: time.Hour, Clock: fakeClock}
	cp := start(t, opts)
	if err := cp.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := cp.Rotation(); got != "leaked" {
		t.Errorf("the rotation is %q", got)
	}
	present := kubeconfigOf(t, dir)
	requireAnswer(t, "in the overlap, the old kubeconfig", leaked, true)
	requireAnswer(t, "in the overlap, the new kubeconfig", present, true)

	// One of the two waits for the next renewal.
	eventually(t, "the end of the overlap is waited for", func() bool { return fakeClock.Waiters() == 2 })
	fakeClock.Step(2 * time.Hour)
	// If kube-apiserver cannot watch the file of the authorities, because the user has used up the inotify instances for example, it
	// reads the file once a minute.
	eventuallyWithin(t, 2*time.Minute, "the old kubeconfig is refused", func() bool { return apierrors.IsUnauthorized(ask(t.Context(), leaked)) })
	requireAnswer(t, "after the overlap, the new kubeconfig", present, true)
	requireWorking(t, client(t, dir), "after-the-overlap")
	for _, name := range []string{"admin.key", "kube-scheduler.key", "client-ca-2.key"} {
		if _, err := os.Stat(filepath.Join(dir, "pki", name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}

	// The next start is asked for the same, or for nothing, and begins no other.
	for _, rotation := range []string{"leaked", ""} {
		if err := cp.Detach(); err != nil {
			t.Fatal(err)
		}
		opts.Rotation = rotation
		cp = start(t, opts)
		if got := kubeconfigOf(t, dir); string(got) != string(present) {
			t.Errorf("started with the rotation %q, there is another kubeconfig", rotation)
		}
		requireAnswer(t, "the old kubeconfig", leaked, false)
	}
}

func kubeconfigOf(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ask makes a request with a kubeconfig.
func ask(ctx context.Context, kubeconfig []byte) error {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	return err
}

func requireAnswer(t *testing.T, what string, kubeconfig []byte, accepted bool) {
	t.Helper()
	if err := ask(t.Context(), kubeconfig); (err == nil) != accepted || !accepted && !apierrors.IsUnauthorized(err) {
		t.Errorf("%s: %v", what, err)
	}
}
