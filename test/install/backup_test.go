package install

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/kinds"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// saved is the namespace of the saved objects.
const saved = "saved"

// allKinds are the resources whose objects are deleted.
const allKinds = "foos,sampleresources,crontabs,virtualmachines,clusters,kubeconfigs"

// leaving is a manifest of an object that is being deleted during the backup.
const leaving = `{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: leaving, namespace: saved, finalizers: [example.com/hold]}, spec: {deploymentName: leaving}}`

// asked is the time of a request for a run that was answered long ago.
const asked = "2020-01-01T00:00:00Z"

// Objects of every kind are saved and restored as in docs/backup.md. They work again, without
// duplicates and leftovers.
func TestLongBackupAndRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	env.Define(t, w.admin)
	w.tellGarbageCollector(t)
	objects := kinds.New(t, w.admin, saved, 1)
	objects.CreateNamespace(t)
	objects.Step = time.Second
	manager := managers.Start(t, "manager", "--kubeconfig", w.Env["KUBECONFIG"], "--controllers", kinds.Controllers, "--vm-driver=fake",
		"--state-dir", objects.StateDir(t), "--metrics-bind-address=0", "--leader-elect=false")
	manager.AwaitReady(t)
	objects.Create(t, 1)
	objects.CreateClusters(t, 1)
	w.apply(t, leaving)
	w.kubectl(t, "patch", "crontab/crontab-0", "--namespace", saved, "--type=merge", "-p", `{"spec":{"missedRuns":"All","maxMissedRuns":100}}`)
	w.kubectl(t, "wait", "--for=condition=Ready", "crontab/crontab-0", "--namespace", saved, "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "patch", "crontab/crontab-0", "--namespace", saved, "--type=merge", "-p", `{"spec":{"runRequestedAt":"`+asked+`"}}`)
	w.kubectl(t, "wait", "--for=jsonpath={.status.lastRunRequestedAt}="+asked, "crontab/crontab-0", "--namespace", saved, "--timeout", transcript.WaitTimeout.String())
	w.settles(t, objects)
	want := w.wanted(t)

	w.kubectl(t, "delete", "foo/leaving", "--namespace", saved, "--wait=false")
	environment := []string{"KUBECONFIG=" + w.Env["KUBECONFIG"], "HOME=" + w.dir, "PATH=" + filepath.Dir(binary(t, "kubectl")) + ":" + os.Getenv("PATH")}
	typed(t, w.dir, environment, commands(t, backupPage, objectsSection, 0))
	other := w.kubectl(t, "get", "kubeconfigs", "-o", "yaml")
	w.deletesAll(t)

	// A backup of another tool has Kubeconfigs whose owner no longer exists.
	s := w.Shell
	s.Stdin = regexp.MustCompile(`(?m)^    (uid|resourceVersion): .*\n`).ReplaceAllString(other, "")
	transcript.Contains(t, s.OK(t, "kubectl", "create", "-f", "-"), "kubeconfig.clusterprovisioner.rke.io/cluster-0 created")
	typed(t, w.dir, environment, commands(t, backupPage, objectsSection, 1))
	w.settles(t, objects)
	if diff := cmp.Diff(want, w.wanted(t)); diff != "" {
		t.Errorf("restored objects differ from saved ones (-saved +restored):\n%s", diff)
	}
	w.runsNothingAgain(t)
	w.deletesAll(t)
}

// deletesAll deletes all Keelson objects and waits until they no longer exist.
func (w *world) deletesAll(t *testing.T) {
	t.Helper()
	w.kubectl(t, "patch", "foo/leaving", "--namespace", saved, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.kubectl(t, "delete", allKinds, "--all", "--all-namespaces", "--timeout", transcript.WaitTimeout.String())
}

// tellGarbageCollector restarts kube-controller-manager: its garbage collector discovers new kinds
// at its start and every half a minute.
func (w *world) tellGarbageCollector(t *testing.T) {
	t.Helper()
	statuses, err := process.Peek(controlplane.Processes(filepath.Dir(w.Env["KUBECONFIG"])))
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range statuses {
		if status.ID == "kube-controller-manager" {
			signals.Send(t, status.PID, syscall.SIGKILL)
			return
		}
	}
	t.Fatalf("no kube-controller-manager among %v", statuses)
}

// settles waits until the state matches the objects.
func (w *world) settles(t *testing.T, objects *kinds.World) {
	t.Helper()
	var differences []string
	defer func() {
		if t.Failed() {
			t.Logf("%s", strings.Join(differences, "\n"))
		}
	}()
	transcript.Eventually(t, "the state matches the objects", func() bool { differences = objects.Differences(t); return len(differences) == 0 })
}

// wanted returns all Keelson objects as their users created them, one per line.
func (w *world) wanted(t *testing.T) string {
	t.Helper()
	return w.kubectl(t, "get", allKinds, "--all-namespaces", "-o",
		`jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.labels} {.metadata.annotations} {.metadata.finalizers} {.spec}{"\n"}{end}`)
}

// runsNothingAgain checks that a restored CronTab has no run for a time before it was restored.
func (w *world) runsNothingAgain(t *testing.T) {
	t.Helper()
	w.kubectl(t, "wait", "--for=jsonpath={.status.lastScheduleTime}", "crontab/crontab-0", "--namespace", saved, "--timeout", transcript.WaitTimeout.String())
	words := strings.Fields(w.kubectl(t, "get", "crontab/crontab-0", "--namespace", saved, "-o", "jsonpath={.metadata.creationTimestamp} {.metadata.uid}"))
	restored, err := time.Parse(time.RFC3339, words[0])
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	jobs := w.kubectl(t, "get", "jobs", "--namespace", saved, "-o", `jsonpath={range .items[*]}{.metadata.ownerReferences[0].uid} {.metadata.annotations.batch\.kubernetes\.io/cronjob-scheduled-timestamp}{"\n"}{end}`)
	for line := range strings.Lines(jobs) {
		owner, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if owner != words[1] {
			continue
		}
		ran++
		if at, err := time.Parse(time.RFC3339, text); err != nil || at.Before(restored) {
			t.Errorf("the CronTab was restored at %s and has a run for %s: %v", words[0], text, err)
		}
	}
	if ran == 0 {
		t.Error("the restored CronTab has not run")
	}
}
