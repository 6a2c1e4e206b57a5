//go:build soak

// Package upgrade replaces a manager and CRDs of the last release with those of the current commit,
// while machines, clusters, schedules and applications run: nothing restarts, nothing flaps, and no
// run is missed or duplicated.
package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/steady"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func TestMain(m *testing.M) { env.Main(m) }

const namespace = "default"

// The time after the upgrade: long enough for several runs of each CronTab and several resyncs of
// the managers.
const after = 8 * time.Second

// kinds are all kinds of Keelson, children are the kinds of their children.
var kinds = []schema.GroupVersionResource{
	{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"},
	{Group: "example.com", Version: "v1", Resource: "sampleresources"},
	{Group: "stable.example.com", Version: "v1", Resource: "crontabs"},
	{Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualmachines"},
	{Group: "clusterprovisioner.rke.io", Version: "v1alpha1", Resource: "clusters"},
	{Group: "clusterprovisioner.rke.io", Version: "v1alpha1", Resource: "kubeconfigs"},
}

var children = []schema.GroupVersionResource{
	appsv1.SchemeGroupVersion.WithResource("deployments"),
	corev1.SchemeGroupVersion.WithResource("pods"),
	corev1.SchemeGroupVersion.WithResource("secrets"),
}

const objects = `
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: web}
spec: {deploymentName: web, replicas: 2}
---
apiVersion: example.com/v1
kind: SampleResource
metadata: {name: sample}
spec: {podImage: "nginx:1"}
---
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: often}
spec:
  schedule: "@every 1s"
  successfulJobsHistoryLimit: 1000
  missedRuns: All
  maxMissedRuns: 100
  jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b}]}
---
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: firmware}
spec:
  terminationGracePeriodSeconds: 0
  resource: {memory: 32Mi}
  image: {path: %s, format: raw, agent: false}
---
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: stopped}
spec:
  action: stopped
  terminationGracePeriodSeconds: 0
  resource: {memory: 32Mi}
  image: {path: %s, format: raw, agent: false}
---
apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata: {name: inner}
`

// TestSoakUpgrade upgrades a live installation of the last release.
func TestSoakUpgrade(t *testing.T) {
	needQEMU(t)
	earlier := buildEarlier(t, lastRelease(t))
	cp := env.ControlPlane(t, controlplane.Options{Nodes: 1, Dir: filepath.Join(t.TempDir(), "cp")})
	if err := cp.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { endAll(t, state) })
	present := besideOf(t, earlier)
	kubeconfig := cp.Kubeconfig()
	images := t.TempDir()
	flags := []string{"--kubeconfig=" + kubeconfig, "--state-dir=" + state, "--vm-driver=qemu", "--metrics-bind-address=0",
		"--leader-elect", "--lease-lock-namespace=" + namespace, "--secret-namespace=" + namespace, "--vm-image-dirs=" + images}

	apply(t, kubeconfig, manifests(t, earlier))
	old := managers.StartBinary(t, earlier, "earlier", flags...)
	old.AwaitReady(t)
	image := filepath.Join(images, "empty.raw")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(t, kubeconfig, fmt.Sprintf(objects, image, image))
	w := &world{steady.Objects{Config: cp.Config(), Namespace: namespace, Kinds: kinds, Children: children}, state}
	w.AwaitSettled(t)
	before, processes := w.AwaitStill(t, after), w.processes() // a component of a new cluster may start twice
	flaps := w.WatchReady(t)

	began := time.Now()
	apply(t, kubeconfig, manifests(t, present))
	next := managers.StartBinary(t, present, "present", flags...)
	old.Signal(t, syscall.SIGTERM)
	old.AwaitDone(t)
	next.AwaitReady(t)
	t.Logf("the upgrade took %v", time.Since(began))
	time.Sleep(after) //nolint:forbidigo // the absence of changes is the point
	w.AwaitSettled(t)

	if diff := cmp.Diff(before, w.Snapshot(t)); diff != "" {
		t.Errorf("the upgrade has changed something (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(processes, w.processes()); diff != "" {
		t.Errorf("processes (-before +after):\n%s", diff)
	}
	if len(processes) < 4 {
		t.Errorf("only %d processes ran, too few for a conclusion", len(processes))
	}
	if seen := flaps(); len(seen) > 0 {
		t.Errorf("not ready in between:\n%s", strings.Join(seen, "\n"))
	}
	w.CheckRuns(t, int(after/time.Second))
	w.deleteAll(t, kubeconfig)
}

// needQEMU skips a test if QEMU is not installed.
func needQEMU(t *testing.T) {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %v. On Debian and Ubuntu: apt-get install qemu-system-x86 qemu-utils", err)
		}
	}
}

// lastRelease returns the tag of the last release before this commit. While there is none, nothing in use needs an upgrade, and the
// manager is replaced by one of the same commit.
func lastRelease(t *testing.T) string {
	t.Helper()
	tag, err := exec.Command("git", "describe", "--tags", "--abbrev=0", "HEAD^").Output()
	if err != nil {
		t.Log("This clone has no tag of a release: upgrading from the current commit to itself")
		return "HEAD"
	}
	return strings.TrimSpace(string(tag))
}

// buildEarlier builds the manager of a commit, mostly from Go's cache.
func buildEarlier(t *testing.T, commit string) string {
	t.Helper()
	began := time.Now()
	source := t.TempDir()
	shell := fmt.Sprintf("git -C %q archive %s | tar -xf - -C %q", root(t), commit, source)
	if out, err := exec.Command("bash", "-o", "pipefail", "-c", shell).CombinedOutput(); err != nil {
		t.Fatalf("read the sources of %s: %v\n%s", commit, err, out)
	}
	binary := filepath.Join(t.TempDir(), "keelson")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./cmd/keelson")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	// It looks for the components in its own directory.
	components, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(components, filepath.Join(filepath.Dir(binary), "keelson-kube")); err != nil {
		t.Fatal(err)
	}
	t.Logf("built the manager of %s in %v", commit, time.Since(began))
	return binary
}

// besideOf puts the current manager into the directory of the earlier one, as an upgrade does: it
// uses the same Kubernetes components, from the same path.
func besideOf(t *testing.T, earlier string) string {
	t.Helper()
	binary, err := env.Binary("keelson")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	present := earlier + "-present"
	if err := os.WriteFile(present, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	return present
}

// root returns the root of the checkout.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// manifests returns the manifests that a version of keelson prints for a cluster.
func manifests(t *testing.T, binary string) string {
	t.Helper()
	var all []string
	for _, what := range []string{"crds", "admission"} {
		out, err := exec.Command(binary, "manifests", what).Output()
		if err != nil {
			t.Fatalf("%s manifests %s: %v", binary, what, err)
		}
		all = append(all, string(out))
	}
	return strings.Join(all, "---\n")
}

// apply applies manifests as in docs/operations.md.
func apply(t *testing.T, kubeconfig, text string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}, Stdin: text}
	shell.Until(transcript.Quietly(t), "it is applied", func(string) bool { return true }, "kubectl", "apply", "--server-side", "-f", "-")
}
