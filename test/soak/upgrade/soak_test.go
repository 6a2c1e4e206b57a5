//go:build soak

// Package upgrade replaces a manager and its definitions with those of the present commit while machines, clusters,
// schedules and applications of an earlier one run: nothing restarts, nothing flaps, no run is missed or made twice.
package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

func TestMain(m *testing.M) { env.Main(m) }

// from is the commit to upgrade from, if there is no release yet: the last one before the admission webhook.
const from = "11940ae86e8235ec00a2ebec646f89f98e3db442"

const namespace = "default"

// Of the time after the upgrade: long enough for several runs of each CronTab and several looks of the managers.
const after = 8 * time.Second

// resources are what is watched: all kinds, and what they own.
var resources = []schema.GroupVersionResource{
	{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"},
	{Group: "example.com", Version: "v1", Resource: "sampleresources"},
	{Group: "stable.example.com", Version: "v1", Resource: "crontabs"},
	{Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualmachines"},
	{Group: "clusterprovisioner.rke.io", Version: "v1alpha1", Resource: "clusters"},
	{Group: "clusterprovisioner.rke.io", Version: "v1alpha1", Resource: "kubeconfigs"},
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

// TestSoakUpgrade upgrades a live installation.
func TestSoakUpgrade(t *testing.T) {
	needQEMU(t)
	earlier := buildEarlier(t)
	cp := env.ControlPlane(t, controlplane.Options{Nodes: 1, Dir: filepath.Join(t.TempDir(), "cp")})
	if err := cp.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { endAll(t, state) })
	present := besideOf(t, earlier)
	kubeconfig := cp.Kubeconfig()
	flags := []string{"--kubeconfig=" + kubeconfig, "--state-dir=" + state, "--vm-driver=qemu", "--metrics-bind-address=0",
		"--leader-elect", "--lease-lock-namespace=" + namespace}

	apply(t, kubeconfig, manifests(t, earlier))
	old := managers.StartBinary(t, earlier, "earlier", flags...)
	old.AwaitReady(t)
	image := filepath.Join(t.TempDir(), "empty.raw")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(t, kubeconfig, fmt.Sprintf(objects, image, image))
	w := &world{config: cp.Config(), state: state}
	before, processes := w.awaitStill(t), w.processes()
	flaps := w.watchReady(t)

	began := time.Now()
	apply(t, kubeconfig, manifests(t, present))
	next := managers.StartBinary(t, present, "present", flags...)
	old.Signal(t, syscall.SIGTERM)
	old.AwaitDone(t)
	next.AwaitReady(t)
	t.Logf("the upgrade took %v", time.Since(began))
	time.Sleep(after) //nolint:forbidigo // that nothing happens is the point
	w.awaitSettled(t)

	if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
		t.Errorf("the upgrade has changed something (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(processes, w.processes()); diff != "" {
		t.Errorf("processes (-before +after):\n%s", diff)
	}
	if len(processes) < 4 {
		t.Errorf("only %d processes ran: this proves little", len(processes))
	}
	if seen := flaps(); len(seen) > 0 {
		t.Errorf("these were not ready in between:\n%s", strings.Join(seen, "\n"))
	}
	w.checkRuns(t)
	w.deleteAll(t, kubeconfig)
}

// needQEMU skips a test where there is none.
func needQEMU(t *testing.T) {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %v. On Debian and Ubuntu: apt-get install qemu-system-x86 qemu-utils", err)
		}
	}
}

// buildEarlier builds the manager of the last release, or of a commit if there is none. Go's cache has most of it.
func buildEarlier(t *testing.T) string {
	t.Helper()
	began := time.Now()
	commit := from
	if tag, err := exec.Command("git", "describe", "--tags", "--abbrev=0", "HEAD^").Output(); err == nil {
		commit = strings.TrimSpace(string(tag))
	}
	if err := exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Logf("%s is not in this clone: upgrading from the present commit to itself", commit)
		commit = "HEAD"
	}
	source := t.TempDir()
	shell := fmt.Sprintf("git -C %q archive %s | tar -xf - -C %q", root(t), commit, source)
	if out, err := exec.Command("bash", "-o", "pipefail", "-c", shell).CombinedOutput(); err != nil {
		t.Fatalf("read the sources of %s, for which the history must be there: %v\n%s", commit, err, out)
	}
	binary := filepath.Join(t.TempDir(), "keelson")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./cmd/keelson")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	// It looks for the components beside itself.
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

// besideOf puts the present manager where the earlier one is, as an upgrade does: with it come the same components of
// Kubernetes, from the same place.
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

// root returns the top of the checkout.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// manifests returns what a version of keelson says that a cluster needs.
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

// apply applies manifests as docs/operations.md says.
func apply(t *testing.T, kubeconfig, text string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}, Stdin: text}
	shell.Until(transcript.Quietly(t), "it is applied", func(string) bool { return true }, "kubectl", "apply", "--server-side", "-f", "-")
}

// world is what there is.
type world struct {
	config *rest.Config
	state  string
}

func (w *world) client(t *testing.T) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitSettled waits until every object is ready, or as it is asked to be.
func (w *world) awaitSettled(t *testing.T) {
	t.Helper()
	w.awaitSettledAnd(t, func() bool { return true })
}

// awaitStill waits until all objects have settled and nothing has changed for a while, and returns what there is then:
// a component of a new cluster may start twice.
func (w *world) awaitStill(t *testing.T) map[string]string {
	t.Helper()
	var last map[string]string
	var since time.Time
	w.awaitSettledAnd(t, func() bool {
		now := w.snapshot(t)
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > after
	})
	return last
}

func (w *world) awaitSettledAnd(t *testing.T, also func() bool) {
	t.Helper()
	var problems []string
	defer func() {
		if t.Failed() {
			t.Logf("not settled:\n%s", strings.Join(problems, "\n"))
		}
	}()
	harness.Eventually(t, "all objects have settled", func() bool {
		problems = nil
		for _, resource := range resources[:6] {
			list, err := w.client(t).Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) == 0 {
				problems = append(problems, "there are no "+resource.Resource)
			}
			for i := range list.Items {
				problems = append(problems, statuscheck.Problems(&list.Items[i])...)
				if resource.Resource == "clusters" && conditionOf(&list.Items[i], "ControlPlaneAvailable") != "True" {
					problems = append(problems, "a component of a cluster is still starting") // Ready is about its API
				}
				if word := readiness(&list.Items[i]); word != "True" && word != "False Stopped" {
					problems = append(problems, fmt.Sprintf("%s %s: Ready is %s", resource.Resource, list.Items[i].GetName(), word))
				}
			}
		}
		return also() && len(problems) == 0
	})
}

// readiness returns the status of Ready, and the reason if it is not True.
func readiness(object *unstructured.Unstructured) string { return conditionOf(object, "Ready") }

// conditionOf returns the status of a condition, and the reason if it is not True.
func conditionOf(object *unstructured.Unstructured, name string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // it has another form: it is not ready
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == name {
			if c["status"] == "True" {
				return "True"
			}
			return fmt.Sprint(c["status"], " ", c["reason"])
		}
	}
	return "none"
}

// snapshot returns what must stay the same: specs, identities, and when conditions changed. What counts the time that
// passes is left out.
func (w *world) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, resource := range resources {
		list, err := w.client(t).Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			if object.GetNamespace() != "" && object.GetNamespace() != namespace || isOfJob(&object) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // it may have none
			restarts, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "restarts")
			raw, err := json.Marshal(map[string]any{
				"uid": object.GetUID(), "generation": object.GetGeneration(), "spec": object.Object["spec"], "data": object.Object["data"],
				"conditions": conditions, "restarts": restarts, "finalizers": object.GetFinalizers(), "owners": object.GetOwnerReferences(),
			})
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.JSONToYAML(raw)
			if err != nil {
				t.Fatal(err)
			}
			all[resource.Resource+"/"+object.GetName()] = string(text)
		}
	}
	return all
}

// isOfJob reports whether it is a Pod of a Job.
func isOfJob(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == "Job"
}

// processes returns the machines and the components of clusters that run.
func (w *world) processes() []string {
	all := slices.DeleteFunc(transcript.Left(w.state), func(line string) bool { return strings.Contains(line, " manager --") })
	slices.Sort(all)
	return all
}

// watchReady notes, until what it returns is called, every moment at which an object is not ready.
func (w *world) watchReady(t *testing.T) (flaps func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	var running sync.WaitGroup
	for _, resource := range resources[:6] {
		watcher, err := w.client(t).Resource(resource).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for event := range watcher.ResultChan() {
				object, ok := event.Object.(*unstructured.Unstructured)
				if !ok || event.Type == watch.Bookmark {
					continue
				}
				if word := readiness(object); event.Type == watch.Deleted || word != "True" && word != "False Stopped" {
					mu.Lock()
					seen = append(seen, fmt.Sprintf("%s %s: %s, Ready is %s", resource.Resource, object.GetName(), event.Type, word))
					mu.Unlock()
				}
			}
		})
	}
	return func() []string {
		cancel()
		running.Wait()
		return seen
	}
}

// checkRuns checks that there is one Job for each second since the first.
func (w *world) checkRuns(t *testing.T) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := clients.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var times []int64
	for i := range jobs.Items {
		at, err := time.Parse(time.RFC3339, jobs.Items[i].Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, at.Unix())
	}
	slices.Sort(times)
	for i := 1; i < len(times); i++ {
		if times[i] != times[i-1]+1 {
			t.Errorf("after the run of %d comes that of %d", times[i-1], times[i])
		}
	}
	t.Logf("%d runs of the CronTab, one a second", len(times))
	if len(times) < int(after/time.Second) {
		t.Errorf("there are only %d runs", len(times))
	}
}

// deleteAll deletes everything and waits until nothing is left outside of the API: what the earlier version made, this one
// can remove.
func (w *world) deleteAll(t *testing.T, kubeconfig string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}}
	shell.OK(t, "kubectl", "delete", "keelson", "--all", "--timeout=50s")
	harness.Eventually(t, "no process is left", func() bool { return len(w.processes()) == 0 })
}

// endAll ends whatever a test that failed has left.
func endAll(t *testing.T, state string) {
	if !t.Failed() {
		return
	}
	for _, line := range transcript.Left(state) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil {
			signals.Try(t, pid, syscall.SIGKILL)
		}
	}
}
