//go:build linux

// Package node has the transcripts of `keelson up --node=real`: Pods with real containers, on this
// machine.
package node

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// TestLongNode is the life cycle of a real node, step by step.
func TestLongNode(t *testing.T) {
	u := newUser(t)
	u.steps(t, []step{
		{"it is ready, and is reported as real", up},
		{"images are loaded without a registry", loadImages},
		{"a layout of images is loaded as well", loadLayout},
		{"an image is pulled from a registry", pullImage},
		{"a Pod runs, with logs, exec and port-forward", runPod},
		{"kubectl top shows what Pods use", top},
		{"files are copied into it and out of it", copyFiles},
		{"a claim gets a volume", volume},
		{"attach connects to the streams of a container", attach},
		{"a Pod reaches the API with its token", reachAPI},
		{"a Pod reaches this machine", reachMachine},
		{"a Pod reaches other networks as this machine", reachOut},
		{"responses reach all addresses of this machine", answerMachine},
		{"a Pod has a port of the node", hostPort},
		{"limits are enforced", limits},
		{"a limit of processors is set in its cgroup", cpuLimit},
		{"the containers of a Foo respond through a Service", foo},
		{"a SampleResource serves its new image", sampleResource},
		{"another node next to it has its own Services", beside},
		{"the Job of a CronTab sees its nominal time", cronTab},
		{"a CronTab replaces a run when its containers have ended", replace},
		{"containerd killed, containers keep running", containerdKilled},
		{"kubelet killed, containers keep running", kubeletKilled},
		{"kube-proxy killed, Services keep working", kubeProxyKilled},
		{"keelson killed, the node keeps running", keelsonKilled},
		{"killed, it comes back with its Pods", killed},
		{"everything killed, up has the Pods again, each of them once", everythingKilled},
		{"down leaves nothing, up has the Pods again", downAndUp},
		{"a volume goes with its claim", volumeDeleted},
		{"everything killed, down leaves nothing", everythingKilledThenDown},
	})
}

func up(t *testing.T, u *user) {
	out := u.up(t)
	transcript.Contains(t, out, "Its node is this host: Pods run with")
	if got := u.field(t, "nodes", "{.items[*].metadata.name}"); got != "keelson-node" {
		t.Errorf("nodes: %q", got)
	}
	if got := u.field(t, "node/keelson-node", `{.status.conditions[?(@.type=="Ready")].status}`); got != "True" {
		t.Errorf("Ready is %q", got)
	}
}

func loadImages(t *testing.T, u *user) {
	u.loadApp(t, "v1")
	u.loadApp(t, "v2")
	transcript.Contains(t, u.OK(t, "keelson", "node", "image", "list", "--data-dir", u.data),
		"docker.io/library/app:v1 ", "docker.io/library/app:v2 ", "keelson.dev/pause:1 ")
}

func runPod(t *testing.T, u *user) {
	u.kubectl(t, "run", "web", "--image=app:v1")
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/web", "--timeout", transcript.WaitTimeout.String())
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
	if got := u.kubectl(t, "get", "--raw", proxied("web")); got != "v1 on web\n" {
		t.Errorf("through kube-apiserver: %q", got)
	}
	if rootless {
		return
	}
	if got := get(t, "http://"+u.field(t, "pod/web", "{.status.podIP}")+":8080"); got != "v1 on web\n" {
		t.Errorf("from the machine: %q", got)
	}
}

// proxied returns the path at which kube-apiserver responds with what a Pod responds.
func proxied(pod string) string { return "/api/v1/namespaces/default/pods/" + pod + ":8080/proxy/" }

func copyFiles(t *testing.T, u *user) {
	folder := filepath.Join(u.home, "letters")
	files := map[string]string{"one": "dear one\n", "more/two": "dear two\n"}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	u.kubectl(t, "cp", folder, "web:/letters")
	for name, text := range files {
		if got := u.kubectl(t, "exec", "web", "--", "/app", "show", "/letters/"+name); got != text+"\n" {
			t.Errorf("inside %s is %q, want %q", name, got, text)
		}
	}
	back := filepath.Join(u.home, "back")
	u.kubectl(t, "cp", "web:/letters", back)
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(back, name)); err != nil || string(got) != text {
			t.Errorf("%s comes back as %q, %v, want %q", name, got, err, text)
		}
	}
}

func attach(t *testing.T, u *user) {
	u.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: ear}
spec:
  restartPolicy: Never
  containers:
  - {name: ear, image: "app:v1", args: [listen], stdin: true, stdinOnce: true}
`)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/ear", "--timeout", transcript.WaitTimeout.String())
	shell := u.Shell
	shell.Stdin = "one\ntwo\n"
	transcript.Contains(t, shell.OK(t, "kubectl", "attach", "-i", "ear"), "heard one\n", "heard two\n")
	u.Until(t, "it has read all", transcript.Is("Succeeded"), "kubectl", "get", "pod", "ear", "-o", "jsonpath={.status.phase}")
}

func reachAPI(t *testing.T, u *user) {
	// The API identifies the owner of the token, as its response shows.
	transcript.Contains(t, u.kubectl(t, "exec", "web", "--", "/app", "secrets"), "403 Forbidden\n",
		`system:serviceaccount:default:default`, `cannot list resource`)
}

func foo(t *testing.T, u *user) {
	u.apply(t, `apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: shop}
spec: {deploymentName: shop, replicas: 2, image: "app:v1"}
`)
	u.kubectl(t, "wait", "--for=condition=Ready", "foo/shop", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "expose", "deployment", "shop", "--port=80", "--target-port=8080")
	address := "http://" + u.field(t, "service/shop", "{.spec.clusterIP}")
	served := map[string]bool{}
	transcript.Eventually(t, "both Pods respond through the Service", func() bool {
		result := u.Run(transcript.Quietly(t), "kubectl", "exec", "web", "--", "/app", "get", address)
		if result.Code != 0 {
			return false
		}
		served[result.Stdout] = true
		return len(served) == 2
	})
	for answer := range served {
		transcript.Contains(t, answer, "200 OK\nv1 on shop-")
	}
	if u.hasServices(t) {
		transcript.Contains(t, get(t, address), "v1 on shop-")
	}
	for _, url := range []string{address, "http://shop", "http://shop.default", "http://shop.default.svc.cluster.local."} {
		transcript.Contains(t, u.kubectl(t, "exec", "web", "--", "/app", "get", url), "200 OK")
	}
	u.kubectl(t, "expose", "deployment", "shop", "--name=balanced", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	balanced := u.Until(t, "it has an address", func(out string) bool { return out != "" },
		"kubectl", "get", "service", "balanced", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
	u.Until(t, "a Pod reaches the load balancer", answersOK, "kubectl", "exec", "web", "--", "/app", "get", "http://"+balanced)
	if !rootless {
		transcript.Contains(t, get(t, "http://"+balanced), "v1 on shop-")
	}
	u.kubectl(t, "expose", "pod", "web", "--name=self", "--port=80", "--target-port=8080")
	u.Until(t, "a Pod reaches itself through a Service", answersOK, "kubectl", "exec", "web", "--", "/app", "get", "http://self")
	transcript.Contains(t, u.Run(t, "kubectl", "exec", "web", "--", "/app", "get", "http://nobody.default.svc.cluster.local.").Stdout, "no such host")
	// A headless Service resolves to the ready Pods.
	u.kubectl(t, "expose", "deployment", "shop", "--name=bare", "--cluster-ip=None", "--port=8080")
	u.Until(t, "a Pod responds at the name of a headless Service", answersOK, "kubectl", "exec", "web", "--", "/app", "get", "http://bare:8080")
}

// answersOK reports whether the program app printed a successful response.
func answersOK(stdout string) bool { return strings.HasPrefix(stdout, "200 OK\n") }

// hasServices reports whether this machine routes to the Services of this node: of several nodes,
// the first one has the routes.
func (u *user) hasServices(t *testing.T) bool {
	t.Helper()
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		t.Fatal(err)
	}
	const network = "0000600A" // 10.96.0.0
	for line := range strings.Lines(string(routes)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "kn-"+nodeIDs(t, u.data)[0] && fields[1] == network {
			return true
		}
	}
	return false
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
			return u.tryAnswer(t, "sample") == version+" on sample\n"
		})
	}
	u.kubectl(t, "delete", "sampleresource", "sample")
}

// answers waits until a Pod responds.
func answers(t *testing.T, u *user, pod, want string) {
	t.Helper()
	transcript.Eventually(t, pod+" answers", func() bool { return u.tryAnswer(t, pod) == want })
}

// tryAnswer returns what a Pod responds to the machine, or without root to kube-apiserver; "" if it does not.
func (u *user) tryAnswer(t *testing.T, pod string) string {
	t.Helper()
	if rootless {
		return u.Run(transcript.Quietly(t), "kubectl", "get", "--raw", proxied(pod)).Stdout
	}
	address := u.Run(transcript.Quietly(t), "kubectl", "get", "pod", pod, "-o", "jsonpath={.status.podIP}").Stdout
	answer, err := tryGet("http://" + address + ":8080")
	if err != nil {
		return ""
	}
	return answer
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := tryGet(url)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// tryGet gets a page over a new connection.
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
