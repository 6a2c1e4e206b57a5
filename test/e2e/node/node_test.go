//go:build linux

// Package node has the transcripts of `keelson up --node=real`: Pods that truly run, on this machine.
package node

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestNode is the life of a real node, one step after the other.
func TestNode(t *testing.T) {
	u := newUser(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *user)
	}{
		{"it is ready, and says that it is real", up},
		{"images are loaded without a registry", loadImages},
		{"a Pod runs, with logs, exec and port-forward", runPod},
		{"a Pod reaches the API with its token", reachAPI},
		{"limits are enforced", limits},
		{"the containers of a Foo answer through a Service", foo},
		{"a SampleResource serves its new image", sampleResource},
		{"the Job of a CronTab sees its nominal time", cronTab},
		{"killed, it comes back with the Pods that it had", killed},
		{"down leaves nothing, up has the Pods again", downAndUp},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, u) }) {
			return // the others stand on this one
		}
	}
}

func up(t *testing.T, u *user) {
	out := u.OK(t, "keelson", "up", "--detach", "--node=real", "--vm-driver=fake", "--data-dir", u.data)
	transcript.Contains(t, out, "Its node is real: pods run on this machine")
	if got := u.field(t, "nodes", "{.items[*].metadata.name}"); got != "keelson-node" {
		t.Errorf("nodes: %q", got)
	}
	u.kubectl(t, "wait", "--for=condition=Ready", "node/keelson-node", "--timeout=1s")
}

func loadImages(t *testing.T, u *user) {
	u.loadApp(t, "v1")
	u.loadApp(t, "v2")
	transcript.Contains(t, u.OK(t, "keelson", "image", "list", "--data-dir", u.data),
		"docker.io/library/app:v1 ", "docker.io/library/app:v2 ", "keelson.dev/pause:1 ")
}

func runPod(t *testing.T, u *user) {
	u.kubectl(t, "run", "web", "--image=app:v1")
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	u.Until(t, "it logs", transcript.Is("serving v1"), "kubectl", "logs", "web")
	if got := u.kubectl(t, "exec", "web", "--", "/app", "say", "hello", "from", "inside"); got != "hello from inside\n" {
		t.Errorf("exec: %q", got)
	}
	forward := u.Start(t, "kubectl", "port-forward", "pod/web", ":8080")
	forward.Await(t, "Forwarding from 127.0.0.1:")
	port := strings.Fields(strings.SplitAfter(forward.Text(), "127.0.0.1:")[1])[0]
	if got := get(t, "http://127.0.0.1:"+port); got != "v1 on web\n" {
		t.Errorf("through port-forward: %q", got)
	}
	if got := get(t, "http://"+u.field(t, "pod/web", "{.status.podIP}")+":8080"); got != "v1 on web\n" {
		t.Errorf("from the machine: %q", got)
	}
}

func reachAPI(t *testing.T, u *user) {
	if got := u.kubectl(t, "exec", "web", "--", "/app", "token"); got != "default\n" {
		t.Errorf("the namespace of the ServiceAccount: %q", got)
	}
	// Without the token it is refused, by an API whose certificate the program does not know: so far the connection goes.
	if got := u.Run(t, "kubectl", "exec", "web", "--", "/app", "get", "https://10.96.0.1/version"); !strings.Contains(got.Stdout, "certificate") {
		t.Errorf("the API: %+v", got)
	}
}

func limits(t *testing.T, u *user) {
	u.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  restartPolicy: Never
  containers:
  - name: hog
    image: app:v1
    args: [hog]
    resources: {limits: {memory: 64Mi}}
`)
	u.Until(t, "it is killed", transcript.Is("OOMKilled 137"), "kubectl", "get", "pod", "hog", "-o",
		"jsonpath={.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}")
}

func foo(t *testing.T, u *user) {
	u.apply(t, `apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: shop}
spec: {deploymentName: shop, replicas: 2, image: "app:v1"}
`)
	u.kubectl(t, "wait", "--for=condition=Ready", "foo/shop", "--timeout=60s")
	u.kubectl(t, "expose", "deployment", "shop", "--port=80", "--target-port=8080")
	address := "http://" + u.field(t, "service/shop", "{.spec.clusterIP}")
	served := map[string]bool{}
	transcript.Eventually(t, "both Pods answer through the Service", func() bool {
		answer, err := tryGet(address)
		if err != nil {
			return false
		}
		served[answer] = true
		return len(served) == 2
	})
	for answer := range served {
		transcript.Contains(t, answer, "v1 on shop-")
	}
	transcript.Contains(t, u.kubectl(t, "exec", "web", "--", "/app", "get", address), "200 OK")
}

func sampleResource(t *testing.T, u *user) {
	const manifest = `apiVersion: example.com/v1
kind: SampleResource
metadata: {name: sample}
spec: {podImage: "app:%s"}
`
	for _, version := range []string{"v1", "v2"} {
		u.apply(t, fmt.Sprintf(manifest, version))
		transcript.Eventually(t, "it serves "+version, func() bool {
			address := u.Run(transcript.Quietly(t), "kubectl", "get", "pod", "sample", "-o", "jsonpath={.status.podIP}").Stdout
			answer, err := tryGet("http://" + address + ":8080")
			return err == nil && answer == version+" on sample\n"
		})
	}
	u.kubectl(t, "delete", "sampleresource", "sample")
}

func cronTab(t *testing.T, u *user) {
	const manifest = `apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: %s}
spec:
  schedule: "@every 1s"
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: job
            image: app:v1
            args: %s
            env:
            - name: JOB
              valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
`
	u.apply(t, fmt.Sprintf(manifest, "tick", "[env, JOB]"))
	u.Until(t, "a run has succeeded", transcript.Not(""), "kubectl", "get", "crontab", "tick", "-o", "jsonpath={.status.lastSuccessfulTime}")
	job := strings.Fields(u.field(t, "jobs", `{.items[?(@.status.succeeded==1)].metadata.name}`))[0]
	annotated := u.field(t, "job/"+job, `{.metadata.annotations.batch\.kubernetes\.io/cronjob-scheduled-timestamp}`)
	nominal, err := time.Parse(time.RFC3339, annotated)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := u.kubectl(t, "logs", "job/"+job), fmt.Sprintf("JOB=tick-%d\n", nominal.Unix()); got != want {
		t.Errorf("the Job of %s says %q, want %q", annotated, got, want)
	}
	u.kubectl(t, "delete", "crontab", "tick")

	u.apply(t, fmt.Sprintf(manifest, "broken", "[fail]"))
	u.Until(t, "a run has failed", transcript.Not(""), "kubectl", "get", "crontab", "broken", "-o", "jsonpath={.status.lastFailureTime}")
	u.kubectl(t, "delete", "crontab", "broken")
}

// killed kills the node as a whole: with its first part the kernel ends the rest.
func killed(t *testing.T, u *user) {
	before := u.field(t, "pod/web", "{.metadata.uid} {.status.containerStatuses[0].restartCount}")
	pid := u.nodePID(t)
	signals.Send(t, pid, syscall.SIGKILL)
	uid := strings.Fields(before)[0]
	u.Until(t, "it runs again", transcript.Is(uid+" 1 true"), "kubectl", "get", "pod", "web", "-o",
		"jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
	if now := u.nodePID(t); now == pid {
		t.Errorf("the node is process %d as before", pid)
	}
	answers(t, u, "pod/web", "v1 on web\n")
}

func downAndUp(t *testing.T, u *user) {
	uid := u.field(t, "pod/web", "{.metadata.uid}")
	u.OK(t, "keelson", "down", "--data-dir", u.data)
	if left := transcript.Left(u.data); len(left) > 0 {
		t.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
	}
	u.OK(t, "keelson", "up", "--detach", "--node=real", "--vm-driver=fake", "--data-dir", u.data)
	u.Until(t, "it runs again", transcript.Is(uid+" 2 true"), "kubectl", "get", "pod", "web", "-o",
		"jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
	transcript.Contains(t, u.kubectl(t, "logs", "web", "--previous"), "ending politely")
	answers(t, u, "pod/web", "v1 on web\n")
}

// nodePID returns the process of the node.
func (u *user) nodePID(t *testing.T) int {
	t.Helper()
	for _, c := range u.status(t).Components {
		if c.Name == "node" {
			return c.PID
		}
	}
	t.Fatal("there is no node among the components")
	return 0
}

// answers waits until a Pod answers.
func answers(t *testing.T, u *user, pod, want string) {
	t.Helper()
	address := "http://" + u.field(t, pod, "{.status.podIP}") + ":8080"
	transcript.Eventually(t, pod+" answers", func() bool {
		answer, err := tryGet(address)
		return err == nil && answer == want
	})
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := tryGet(url)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// tryGet gets a page over a connection of its own.
func tryGet(url string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
