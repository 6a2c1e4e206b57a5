package life

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/files"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	foo        = "foo/example-foo"
	deployment = "deployment/example-foo"
	sample     = "sampleresource/example-sample"
	pod        = "pod/example-sample"
)

// TestLife is the life cycle of a durable control plane, step by step.
func TestLife(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *machine)
	}{
		{"before the first start", beforeTheFirstStart},
		{"up in the background, with a context for the user", upInTheBackground},
		{"a second up reports the running one", secondUp},
		{"objects get their children", makeObjects},
		{"killed, it leaves the components behind", killed},
		{"others can run the controllers meanwhile", runElsewhere},
		{"up adopts the components", upAfterKill},
		{"down stops everything and keeps the data", downKeepsData},
		{"up restores everything, even if its output is not read", upUnread},
		{"down can delete the data", downDeletesData},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, m) }) {
			return // later steps depend on this one
		}
	}
}

func beforeTheFirstStart(t *testing.T, m *machine) {
	transcript.Contains(t, m.Fails(t, 1, "keelson", "status"), "Keelson was never started in "+m.data()+".\n")
	transcript.Contains(t, m.OK(t, "keelson", "down"), "Nothing to stop: Keelson was never started in "+m.data()+".\n")
	if entries, err := os.ReadDir(m.home); err != nil || len(entries) != 1 {
		t.Errorf("status and down have created files: %v, %v", entries, err)
	}
}

func upInTheBackground(t *testing.T, m *machine) {
	theirs := clientcmdapi.NewConfig()
	theirs.Clusters["work"] = &clientcmdapi.Cluster{Server: "https://work.example:6443"}
	theirs.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "secret"}
	theirs.Contexts["work"] = &clientcmdapi.Context{Cluster: "work", AuthInfo: "me", Namespace: "mine"}
	theirs.CurrentContext = "work"
	if err := clientcmd.WriteToFile(*theirs, m.path(".kube", "config")); err != nil {
		t.Fatal(err)
	}

	// At least the programs of a real node are missing.
	transcript.Contains(t, m.Fails(t, 1, "keelson", "up", "--detach", "--node=real"), "this machine cannot run a real node; missing: ")
	out := m.OK(t, "keelson", "up", "-d", "--merge-kubeconfig", "--node=auto", "--nodes", "2")
	report := m.status(t)
	transcript.Contains(t, out,
		"\n  kube-apiserver ",
		"Keelson is ready after ", " a Kubernetes API at "+report.Server+" with the controllers "+strings.Join(manager.Names(), ", ")+".\n",
		"kubectl --context keelson get foos\n",
		"Its nodes are simulated", "A real node is not possible here; missing: ",
		"`keelson down` stops it. All objects are kept for the next `keelson up`.\n",
	)
	transcript.Contains(t, m.OK(t, "keelson", "status"), "Keelson is running (pid ", m.data(), report.Server, "kube-apiserver ")
	consoleOpens(t, strings.TrimSpace(m.OK(t, "keelson", "console", "--context=keelson")))
	consoleOpens(t, strings.TrimSpace(m.OK(t, "keelson", "console", "--print-url", "--data-dir", m.data())))
	isClosedToOthers(t, m.data())

	nodes := m.OK(t, "kubectl", "--context", "keelson", "get", "nodes", "--no-headers", "-o", "custom-columns=:.metadata.name,:.metadata.labels.keelson\\.dev/simulated")
	if got := strings.Join(strings.Fields(nodes), " "); got != "simulated-0 true simulated-1 true" {
		t.Errorf("nodes: %q", got)
	}
	merged, err := clientcmd.LoadFromFile(m.path(".kube", "config"))
	if err != nil {
		t.Fatal(err)
	}
	if merged.CurrentContext != "work" {
		t.Errorf("the current context is %q", merged.CurrentContext)
	}
	for _, entry := range []string{"keelson"} {
		delete(merged.Clusters, entry)
		delete(merged.AuthInfos, entry)
		delete(merged.Contexts, entry)
	}
	if err := clientcmd.WriteToFile(*merged, m.path("without")); err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.WriteToFile(*theirs, m.path("before")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files.Read(t, m.path("before")), files.Read(t, m.path("without"))); diff != "" {
		t.Errorf("the user's own contexts have changed (-before +after):\n%s", diff)
	}
}

// consoleOpens checks that the URL that a command printed opens the console once.
func consoleOpens(t *testing.T, printed string) {
	t.Helper()
	address, token, found := strings.Cut(printed, "/#token=")
	if !found {
		t.Fatalf("no URL with a token: %q", printed)
	}
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/session", strings.NewReader(`{"token":"`+token+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", address)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("the token opens a session: %s, want %d", response.Status, want)
		}
	}
}

func secondUp(t *testing.T, m *machine) {
	first := m.status(t)
	components := m.components(t)
	same := []string{"keelson", "up", "--detach", "--merge-kubeconfig", "--node=auto", "--nodes", "2"}
	transcript.Contains(t, m.OK(t, same...), fmt.Sprintf("Already up. Keelson is running (pid %d).", first.ManagerPID))
	for _, words := range [][]string{{"keelson", "up"}, {"keelson", "up", "--detach"}} { // a flag that is not given keeps its value
		transcript.Contains(t, m.OK(t, words...), fmt.Sprintf("Already up. Keelson is running (pid %d).", first.ManagerPID))
	}
	transcript.Contains(t, m.Fails(t, 1, "keelson", "up", "--node=simulated", "--nodes=3"), "--node, --nodes cannot change while it runs: run `keelson down` first")
	transcript.Contains(t, m.Fails(t, 1, "keelson", "up", "--ephemeral", "--data-dir", m.data()), "error: the objects in "+m.data()+" are persistent")
	if now := m.status(t); now.ManagerPID != first.ManagerPID || !now.APIReady {
		t.Errorf("the first instance was affected: %+v", now)
	}

	// What can change while everything runs, changes.
	transcript.Contains(t, m.OK(t, "keelson", "up", "--detach", "--threads=4"), "Changing --threads of the running instance; machines and clusters keep running.\n", "Keelson is ready after ")
	if now := m.status(t); now.ManagerPID == first.ManagerPID || !now.APIReady {
		t.Errorf("after a change: %+v", now)
	}
	if after := m.components(t); !maps.Equal(components, after) {
		t.Errorf("processes were %v and are %v", components, after)
	}
}

func makeObjects(t *testing.T, m *machine) {
	user := m.withCluster()
	manifests := filepath.Join("..", "..", "..", "examples", "manifests")
	user.OK(t, "kubectl", "apply", "-f", filepath.Join(manifests, "foo.yaml"), "-f", filepath.Join(manifests, "sampleresource.yaml"))
	awaitReady(t, user)
}

func awaitReady(t *testing.T, user transcript.Shell) {
	t.Helper()
	user.OK(t, "kubectl", "wait", "--for=condition=Ready", foo, sample, "--timeout", transcript.WaitTimeout.String())
}

func killed(t *testing.T, m *machine) {
	before := m.status(t)
	kill(t, before.ManagerPID)
	transcript.Contains(t, m.Fails(t, 1, "keelson", "status"),
		"Keelson is not running, but some of its components are. `keelson up` adopts them, `keelson down` stops them.\n")
	transcript.Contains(t, m.Fails(t, 1, "keelson", "console", "--print-url", "--context=keelson"), "keelson up serves no console of keelson: ")
	after := m.status(t)
	if diff := cmp.Diff(before.Components, after.Components); diff != "" {
		t.Errorf("components (-before +after):\n%s", diff)
	}
}

// runElsewhere runs only the controllers, on the orphaned control plane.
func runElsewhere(t *testing.T, m *machine) {
	user := m.withCluster()
	user.OK(t, "kubectl", "delete", deployment)
	manager := user.Start(t, "keelson", "manager", "--health-probe-bind-address=0", "--metrics-bind-address=0")
	user.OK(t, "kubectl", "wait", "--for=create", deployment, "--timeout", transcript.WaitTimeout.String())
	manager.Signal(t, syscall.SIGTERM)
	if result := manager.Wait(t); result.Code != 0 {
		t.Errorf("keelson manager: exit code %d after SIGTERM", result.Code)
	}
}

func upAfterKill(t *testing.T, m *machine) {
	user := m.withCluster()
	before := m.status(t)
	user.OK(t, "kubectl", "scale", deployment, "--replicas", "5")
	user.OK(t, "kubectl", "delete", pod)

	m.OK(t, "keelson", "up", "--detach", "--nodes", "2")
	after := m.status(t)
	if diff := cmp.Diff(before.Components, after.Components); diff != "" {
		t.Errorf("components (-before +after):\n%s", diff)
	}
	user.OK(t, "kubectl", "wait", "--for=jsonpath={.spec.replicas}=1", deployment, "--timeout", transcript.WaitTimeout.String())
	user.OK(t, "kubectl", "wait", "--for=create", pod, "--timeout", transcript.WaitTimeout.String())
	awaitReady(t, user)
}

func downKeepsData(t *testing.T, m *machine) {
	report := m.status(t)
	transcript.Contains(t, m.OK(t, "keelson", "down"), "Stopped in ", "The data stays in "+m.data()+".\n")
	m.nothingIsLeft(t)
	expectNoListener(t, report)
	transcript.Contains(t, m.Fails(t, 1, "keelson", "status"), "Keelson is stopped. `keelson up` starts it with its data.\n")
	transcript.Contains(t, m.OK(t, "keelson", "down"), "Nothing was running in "+m.data()+". The data stays in "+m.data()+".\n")
}

// upUnread starts it in the foreground for a reader that ends after the first line, as in `keelson
// up | head -1`, and stops it with two signals at once, as some terminals and supervisors send
// them.
func upUnread(t *testing.T, m *machine) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	up := m.Command(t.Context(), t, "keelson", "up")
	up.Stdout, up.Stderr = w, w
	t.Log("$ keelson up 2>&1 | head -1 &")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Errorf("first line: %v", err)
	}
	_ = r.Close()
	m.Until(t, "it runs", transcript.Not(""), "keelson", "status")

	user := m.withCluster()
	user.OK(t, "kubectl", "delete", deployment)
	user.OK(t, "kubectl", "wait", "--for=create", deployment, "--timeout", transcript.WaitTimeout.String())
	user.OK(t, "kubectl", "get", sample, pod)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Logf("$ kill -%s %d", signal, up.Process.Pid)
		if err := up.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if err := up.Wait(); err != nil {
		t.Errorf("keelson up after the signals: %v", err)
	}
	m.nothingIsLeft(t)
	expectNoListener(t, controlplane.Report{Server: m.status(t).Server})
}

func downDeletesData(t *testing.T, m *machine) {
	transcript.Contains(t, m.OK(t, "keelson", "down", "--delete-data"), "The data in "+m.data()+" is deleted.\n")
	if _, err := os.Stat(m.data()); !os.IsNotExist(err) {
		t.Errorf("the data directory still exists: %v", err)
	}
	transcript.Contains(t, m.Fails(t, 1, "keelson", "status"), "Keelson was never started in ")
	if theirs := files.Read(t, m.path(".kube", "config")); strings.Contains(theirs, "keelson") {
		t.Errorf("the context is still in the kubeconfig of the user:\n%s", theirs)
	}
}
