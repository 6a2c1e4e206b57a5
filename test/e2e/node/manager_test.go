//go:build linux

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	// managerImage and managerHome are the image and the namespace of the installation.
	managerImage = "keelson:pods"
	managerHome  = "keelson-system"
	managers     = "app.kubernetes.io/component=manager"
)

// TestLongManager installs the manager as in docs/install.md, on an API without Keelson's
// controllers: it runs as Pods on the real node, and one of them is killed.
func TestLongManager(t *testing.T) {
	u := newUser(t)
	t.Cleanup(func() { // before the instance stops
		if t.Failed() {
			u.Run(t, "kubectl", "describe", "pods", "--namespace", managerHome)
			u.Run(t, "kubectl", "logs", "--namespace", managerHome, "--selector", managers, "--prefix")
		}
	})
	u.steps(t, []step{
		{"nothing of Keelson exists", bare},
		{"it is installed with three replicas", install},
		{"its webhook is called through its Service", refuse},
		{"objects get their children", work},
		{"with machines, its leader serves the access API", serveAccess},
		{"its leader killed, another one takes over, and nothing is duplicated", loseLeader},
		{"none of its requests was forbidden", permitted},
	})
}

func bare(t *testing.T, u *user) {
	out := u.OK(t, "keelson", "up", "--detach", "--no-controllers", "--data-dir", u.data)
	transcript.Contains(t, out, "without controllers", "Its node is this host")
	if got := u.kubectl(t, "get", "crds", "-o", "name"); got != "" {
		t.Errorf("definitions: %s", got)
	}
}

func install(t *testing.T, u *user) {
	u.loadApp(t, "v1")
	u.loadManager(t)
	manifest := filepath.Join(u.home, "install.yaml")
	if out, err := exec.Command("../../../hack/dist.sh", managerImage, manifest).CombinedOutput(); err != nil {
		t.Fatalf("make dist: %v\n%s", err, out)
	}
	u.kubectl(t, "apply", "--server-side", "-f", manifest)
	u.kubectl(t, "scale", "deployment/keelson-manager", "--namespace", managerHome, "--replicas=3")
	u.awaitReplicas(t)
}

// loadManager loads the image of the manager, which has only the program, as in the Dockerfile.
func (u *user) loadManager(t *testing.T) {
	t.Helper()
	program, err := env.Binary("keelson")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "keelson"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	out := u.OK(t, "keelson", "node", "image", "load", "--data-dir", u.data, "--name", managerImage, folder)
	transcript.Contains(t, out, "docker.io/library/"+managerImage+"\n")
}

// awaitReplicas waits until exactly three managers are ready.
func (u *user) awaitReplicas(t *testing.T) {
	t.Helper()
	u.Until(t, "three replicas are ready", transcript.Is("3 3 3"), "kubectl", "get", "deployment", "keelson-manager",
		"--namespace", managerHome, "-o", "jsonpath={.status.replicas} {.status.updatedReplicas} {.status.readyReplicas}")
}

// leader returns the Pod that holds the lease; "" if there is none.
func (u *user) leader(t testing.TB) string {
	t.Helper()
	holder := u.Run(transcript.Quietly(t), "kubectl", "get", "lease", "keelson", "--namespace", managerHome, "-o", "jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(holder.Stdout, "_")
	return pod
}

// refuse applies an object that the CRD accepts and the webhook rejects, which proves that it is
// reachable.
func refuse(t *testing.T, u *user) {
	shell := u.Shell
	shell.Stdin = `apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: backwards}
spec:
  schedule: "0 22-2 * * *"
  jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b}]}
`
	transcript.Eventually(t, "the manager rejects a CronTab", func() bool {
		got := shell.Run(transcript.Quietly(t), "kubectl", "create", "--dry-run=server", "-f", "-")
		return got.Code == 1 && strings.Contains(got.Stderr, "the range runs backwards")
	})
}

// work creates a Foo, and a CronTab that keeps all its Jobs.
func work(t *testing.T, u *user) {
	u.apply(t, `apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: shop}
spec: {deploymentName: shop, replicas: 2, image: "app:v1"}
---
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: tick}
spec:
  schedule: "@every 2s"
  successfulJobsHistoryLimit: 100
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers: [{name: job, image: "app:v1", args: [say, hello]}]
`)
	u.kubectl(t, "wait", "--for=condition=Ready", "foo/shop", "--timeout", transcript.WaitTimeout.String())
	u.Until(t, "a run has succeeded", transcript.Not(""), "kubectl", "get", "crontab", "tick", "-o", "jsonpath={.status.lastSuccessfulTime}")
}

// usageOfWeb reads a subresource of the machine web.
var usageOfWeb = []string{"kubectl", "get", "--raw", "/apis/access.cloudnative.tw/v1alpha1/namespaces/default/virtualmachines/web/usage"}

func servesUsage(text string) bool { return strings.Contains(text, `"kind":"MachineUsage"`) }

// serveAccess enables the kind VirtualMachine, with the driver fake. kube-apiserver reaches the leader through the Service.
func serveAccess(t *testing.T, u *user) {
	overlay := t.TempDir()
	config, err := filepath.Abs("../../../config")
	if err != nil {
		t.Fatal(err)
	}
	if config, err = filepath.Rel(overlay, config); err != nil {
		t.Fatal(err)
	}
	kustomization := `resources: [` + config + `/default]
components: [` + config + `/kinds/virtualmachine]
images: [{name: keelson, newTag: pods}]
replicas: [{name: keelson-manager, count: 3}]
patches:
- target: {kind: Deployment, name: keelson-manager}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --vm-driver=fake}
`
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	u.kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", overlay)
	u.kubectl(t, "rollout", "status", "deployment/keelson-manager", "--namespace", managerHome, "--timeout", "3m")
	u.awaitReplicas(t)
	transcript.Eventually(t, "a machine is created", func() bool {
		shell := u.Shell
		shell.Stdin = "{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: web}, spec: {driver: fake}}"
		return shell.Run(transcript.Quietly(t), "kubectl", "apply", "-f", "-").Code == 0
	})
	u.Until(t, "the leader serves the access API", servesUsage, usageOfWeb...)
	transcript.Contains(t, u.kubectl(t, "get", "endpointslice", "keelson-access", "--namespace", managerHome, "-o", "jsonpath={.endpoints[*].addresses[*]}"),
		u.kubectl(t, "get", "pod", u.leader(t), "--namespace", managerHome, "-o", "jsonpath={.status.podIP}"))
}

// loseLeader simulates the loss of the leader's machine: its process is killed and its Pod is
// deleted by force.
func loseLeader(t *testing.T, u *user) {
	served := u.pods(t, "shop-")
	lost := u.leader(t)
	if lost == "" {
		t.Fatal("nobody holds the lease")
	}
	killed := time.Now()
	signals.Send(t, managerPID(t, lost), syscall.SIGKILL)
	u.kubectl(t, "delete", "pod", lost, "--namespace", managerHome, "--grace-period=0", "--force")
	var next string
	transcript.Eventually(t, "another one holds the lease", func() bool {
		next = u.leader(t)
		return next != "" && next != lost
	})
	t.Logf("%s took over from %s after %.1f s", next, lost, time.Since(killed).Seconds())
	u.awaitReplicas(t)

	u.kubectl(t, "scale", "foo", "shop", "--replicas=3")
	u.Until(t, "the new leader scales", transcript.Is("3"), "kubectl", "get", "deployment", "shop", "-o", "jsonpath={.status.readyReplicas}")
	u.Until(t, "the new leader serves the access API", servesUsage, usageOfWeb...)
	if got := u.pods(t, "shop-"); len(got) != 3 || !slices.Equal(intersection(served, got), served) {
		t.Errorf("the Foo had the Pods %q, now it has %q", served, got)
	}
	if got := strings.Fields(u.kubectl(t, "get", "deployments,replicasets", "-o", "name")); len(got) != 2 {
		t.Errorf("the Foo has %q, want one Deployment and its ReplicaSet", got)
	}
	runsOnce(t, u, killed)
}

// runsOnce checks that each run of the CronTab has one Job and one Pod, and that there are runs
// after a time.
func runsOnce(t *testing.T, u *user, after time.Time) {
	const times = `{range .items[*]}{.metadata.annotations.batch\.kubernetes\.io/cronjob-scheduled-timestamp}{"\n"}{end}`
	latest := func(text string) bool {
		return slices.ContainsFunc(strings.Fields(text), func(nominal string) bool {
			at, err := time.Parse(time.RFC3339, nominal)
			return err == nil && at.After(after.Add(time.Second))
		})
	}
	u.Until(t, "runs continue", latest, "kubectl", "get", "jobs", "-o", "jsonpath="+times)
	u.kubectl(t, "patch", "crontab", "tick", "--type=merge", "--patch", `{"spec":{"suspend":true}}`)
	// While it is suspended, it has no next run.
	u.Until(t, "all runs have ended", transcript.Is(""), "kubectl", "get", "crontab", "tick", "-o",
		"jsonpath={.status.active}{.status.nextScheduleTime}")
	nominal := strings.Fields(u.field(t, "jobs", times))
	slices.Sort(nominal)
	if diff := cmp.Diff(slices.Compact(slices.Clone(nominal)), nominal); diff != "" {
		t.Errorf("times of the runs (-unique +all):\n%s", diff)
	}
	if got := len(u.pods(t, "tick-")); got != len(nominal) {
		t.Errorf("%d runs have %d Pods", len(nominal), got)
	}
	if result := u.field(t, "crontab/tick", "{.status.lastRun.result}"); result != "Succeeded" {
		t.Errorf("the result of the last run is %q", result)
	}
}

// permitted checks that no request was forbidden: the manager has all permissions that it uses.
func permitted(t *testing.T, u *user) {
	logs := u.OK(transcript.Quietly(t), "kubectl", "logs", "--namespace", managerHome, "--selector", managers, "--tail=-1")
	transcript.Contains(t, logs, "Manager is ready")
	for line := range strings.Lines(logs) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "Unauthorized") {
			t.Error(line)
		}
	}
}

// pods returns the names and UIDs of the Pods in the default namespace with a prefix.
func (u *user) pods(t *testing.T, prefix string) []string {
	t.Helper()
	lines := strings.Split(u.field(t, "pods", `{range .items[*]}{.metadata.name} {.metadata.uid}{"\n"}{end}`), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

// intersection returns the elements of a that are also in b.
func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// managerPID returns the PID, on the machine, of the manager in a Pod.
func managerPID(t *testing.T, pod string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		words, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(words), "/keelson\x00manager\x00") {
			continue // another one, or it has just ended
		}
		environment, err := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		if err != nil || !slices.Contains(strings.Split(string(environment), "\x00"), "HOSTNAME="+pod) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no process of a manager is in the Pod %s", pod)
	return 0
}
