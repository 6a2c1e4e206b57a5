//go:build linux && kueue

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestKueue has CronTabs whose Jobs Kueue queues, in a cluster where Kueue is installed with its own manifests. make kueue runs it.
func TestKueue(t *testing.T) {
	u := newUser(t)
	t.Cleanup(func() { // before the instance stops
		if t.Failed() {
			u.Run(t, "kubectl", "describe", "crontabs,jobs,workloads")
			u.Run(t, "kubectl", "logs", "--namespace", "kueue-system", "deployment/kueue-controller-manager", "--tail=50")
		}
	})
	u.steps(t, []step{
		{"Kueue is installed, with quota for one Pod", installKueue},
		{"a run within the quota is admitted", admitted},
		{"another run waits suspended, and counts as active", waits},
		{"Replace deletes a run that waits", replaced},
		{"the run that waits is admitted when there is quota, and succeeds", admittedLater},
	})
}

func installKueue(t *testing.T, u *user) {
	u.OK(t, "keelson", "up", "--detach", "--data-dir", u.data)
	u.loadApp(t, "v1")
	bin, err := env.Binary("kueue/manager")
	if err != nil {
		t.Fatal(err)
	}
	transcript.Contains(t, u.OK(t, "keelson", "node", "image", "load", "--data-dir", u.data, "--name", "kueue:main", filepath.Dir(bin)), "docker.io/library/kueue:main\n")
	u.kubectl(t, "apply", "--server-side", "-f", kueueManifest(t, u))
	u.kubectl(t, "wait", "--namespace", "kueue-system", "--for=condition=Available", "deployment/kueue-controller-manager",
		"--timeout", transcript.WaitTimeout.String())
	// Its webhooks respond a little later.
	queues := u.Shell
	queues.Stdin = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [pods]
    flavors: [{name: any, resources: [{name: pods, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: all}
`
	transcript.Eventually(t, "the queues are created", func() bool {
		return queues.Run(transcript.Quietly(t), "kubectl", "apply", "-f", "-").Code == 0
	})
}

// kueueManifest returns the file of Kueue's manifests with the image that the node has. A Pod has to run with a user other than
// root, which the image of a folder does not name.
func kueueManifest(t *testing.T, u *user) string {
	t.Helper()
	bin, err := env.Binary("kueue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	image := "image: us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue:main"
	if !strings.Contains(string(text), image) {
		t.Fatalf("the manifests of Kueue have no %q", image)
	}
	file := filepath.Join(u.home, "kueue.yaml")
	changed := strings.NewReplacer(image, "image: kueue:main", "imagePullPolicy: Always", "imagePullPolicy: Never",
		"runAsNonRoot: true", "runAsNonRoot: true\n        runAsUser: 65532").Replace(string(text))
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// queued applies a CronTab with the template of docs/crontab-tasks.md.
func (u *user) queued(t *testing.T, name, policy, args string) {
	t.Helper()
	u.apply(t, strings.NewReplacer("NAME", name, "POLICY", policy, "ARGS", args).Replace(`apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: NAME}
spec:
  schedule: "@every 1s"
  concurrencyPolicy: POLICY
  jobTemplate:
    metadata: {labels: {kueue.x-k8s.io/queue-name: team}}
    spec:
      backoffLimit: 0
      template:
        metadata: {labels: {crontab: NAME}}
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 0
          containers: [{name: job, image: "app:v1", args: ARGS}]
`))
}

func admitted(t *testing.T, u *user) {
	u.queued(t, "busy", "Forbid", "[]") // serves until it is deleted
	u.Until(t, "its Pod runs", transcript.Is("Running"), "kubectl", "get", "pods", "-l", "crontab=busy", "-o", "jsonpath={.items[*].status.phase}")
}

// awaitSuspended waits until a CronTab has one Job, which is suspended and not the old one, and returns its name.
func (u *user) awaitSuspended(t *testing.T, crontab, old string) string {
	t.Helper()
	return u.Until(t, "its only Job is suspended", func(stdout string) bool {
		return strings.HasSuffix(stdout, "=true,") && strings.Count(stdout, ",") == 1 && stdout != old
	}, "kubectl", "get", "jobs", "-l", stablev1.NameLabel+"="+crontab, "-o", "jsonpath={range .items[*]}{.metadata.name}={.spec.suspend},{end}")
}

func waits(t *testing.T, u *user) {
	u.queued(t, "next", "Queue", "[say, done]")
	job := u.awaitSuspended(t, "next", "")
	u.Until(t, "later times wait for it", transcript.Not(""), "kubectl", "get", "crontab", "next", "-o", "jsonpath={.status.queuedTimes[1]}")
	if now := u.awaitSuspended(t, "next", ""); now != job {
		t.Errorf("the only Job is %q, want %q as before", now, job)
	}
}

func replaced(t *testing.T, u *user) {
	u.queued(t, "swap", "Replace", "[say, done]")
	u.awaitSuspended(t, "swap", u.awaitSuspended(t, "swap", ""))
	u.kubectl(t, "delete", "crontab", "swap")
}

func admittedLater(t *testing.T, u *user) {
	u.kubectl(t, "delete", "crontab", "busy")
	u.Until(t, "it has succeeded", transcript.Not(""), "kubectl", "get", "crontab", "next", "-o", "jsonpath={.status.lastSuccessfulTime}")
	transcript.Contains(t, u.OK(t, "keelson", "crontab", "history", "next"), "Succeeded")
	u.kubectl(t, "delete", "crontab", "next")
	u.Until(t, "Kueue has nothing left of them", transcript.Is(""), "kubectl", "get", "workloads", "-o", "name")
}
