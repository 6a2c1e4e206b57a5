package install

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"k8s.io/client-go/rest"

	access "github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const (
	withMachines = "resources: [../keelson/config/default]\ncomponents: [../keelson/config/kinds/virtualmachine]"
	apiService   = "v1alpha1.access.cloudnative.tw"
	ofWeb        = "/apis/access.cloudnative.tw/v1alpha1/namespaces/default/virtualmachines/web/"
)

// The manager of an installation serves the access API behind its Service: to users with the permission, to nobody who
// goes around kube-apiserver, and by the next leader after the first one was killed. Nothing of it is left behind.
func TestLongAccessOfAnInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	manifests := w.kustomize(t, overlayIn(t, withMachines))
	w.apply(t, manifests)
	kubeconfig := w.kubeconfigOf(t, w.newGate(t), home, account)
	first := w.startInstalled(t, "first", kubeconfig, harness.FreeAddress(t).String(), "--vm-driver=fake")
	first.AwaitReady(t)
	second := w.startInstalled(t, "second", kubeconfig, harness.FreeAddress(t).String(), "--vm-driver=fake")
	w.apply(t, "{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: web, namespace: default}, spec: {driver: fake}}")
	for _, role := range []string{"edit", "view"} {
		w.kubectl(t, "create", "rolebinding", role, "--clusterrole", role, "--user", role)
	}
	usage := []string{"kubectl", "get", "--raw", ofWeb + "usage", "--as", "view"}
	w.kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout", transcript.WaitTimeout.String())
	w.Until(t, "the usage is served", func(text string) bool { return strings.Contains(text, `"kind":"MachineUsage"`) }, usage...)
	if result := w.Run(t, "kubectl", "get", "--raw", ofWeb+"console", "--as", "view"); !strings.Contains(result.Stderr, "Forbidden") {
		t.Errorf("a console for a user without the permission: %+v", result)
	}
	if result := w.Run(t, "kubectl", "get", "--raw", ofWeb+"log", "--as", "edit"); !strings.Contains(result.Stderr, "fake") {
		t.Errorf("the driver fake has no log: %+v", result)
	}
	served := w.servedAt(t)
	refusesOthers(t, served)

	killed := time.Now()
	first.Kill(t)
	transcript.Eventually(t, "the next leader serves", func() bool {
		return w.servedAt(t) != served && strings.Contains(w.Run(transcript.Quietly(t), usage...).Stdout, "MachineUsage")
	})
	t.Logf("served by the next leader %.1f s after the first one was killed; the lease has 15 s", time.Since(killed).Seconds())
	for _, refused := range w.recordOf(t, "system:serviceaccount:"+home+":"+account).refused {
		t.Errorf("missing permission: %s", refused)
	}

	// Without a manager the API does not answer, and namespaces that are deleted stay; without the API they go.
	w.kubectl(t, "delete", "virtualmachine", "web", "--timeout", transcript.WaitTimeout.String())
	second.End(t)
	w.Until(t, "nobody serves", transcript.Is("False"), "kubectl", "get", "apiservice", apiService, "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status}`)
	w.namespace(t, "doomed")
	w.kubectl(t, "delete", "namespace", "doomed", "--wait=false")
	w.Until(t, "the namespace cannot be deleted", transcript.Is("True"), "kubectl", "get", "namespace", "doomed", "-o",
		`jsonpath={.status.conditions[?(@.type=="NamespaceDeletionDiscoveryFailure")].status}`)
	w.kubectl(t, "delete", "-k", "../../config/access")
	w.kubectl(t, "wait", "--for=delete", "namespace/doomed", "--timeout", transcript.WaitTimeout.String())
	w.apply(t, manifests)
	w.uninstall(t, manifests)
	if out, err := helm(t, w.Env["KUBECONFIG"], "install", "keelson", chart, "--namespace", "helm", "--create-namespace", "--wait", "--set", "controllers.virtualmachine=true"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	w.kubectl(t, "get", "apiservice", apiService)
	if out, err := helm(t, w.Env["KUBECONFIG"], "upgrade", "keelson", chart, "--namespace", "helm", "--wait", "--set", "controllers.virtualmachine=false"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	w.isGone(t)
	if out, err := helm(t, w.Env["KUBECONFIG"], "upgrade", "keelson", chart, "--namespace", "helm", "--wait", "--set", "controllers.virtualmachine=true"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if out, err := helm(t, w.Env["KUBECONFIG"], "uninstall", "keelson", "--namespace", "helm", "--wait"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	w.isGone(t)
	w.kubectl(t, "delete", "namespace", "helm", "--timeout", transcript.WaitTimeout.String())
}

// servedAt returns the address to which the Service of the access API leads.
func (w *world) servedAt(t *testing.T) string {
	t.Helper()
	return w.OK(transcript.Quietly(t), "kubectl", "get", "endpointslice", "keelson-access", "--namespace", home, "-o",
		"jsonpath={.endpoints[0].addresses[0]}:{.ports[0].port}")
}

// uninstall deletes all objects of manifests, and checks that nothing of the access API is left.
func (w *world) uninstall(t *testing.T, manifests string) {
	t.Helper()
	s := w.Shell
	s.Stdin = manifests
	s.OK(t, "kubectl", "delete", "-f", "-", "--ignore-not-found", "--timeout", transcript.WaitTimeout.String())
	w.isGone(t)
}

func (w *world) isGone(t *testing.T) {
	t.Helper()
	if left := w.kubectl(t, "get", "apiservices,flowschemas", "--selector", "app.kubernetes.io/name=keelson", "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// refusesOthers sends requests with the headers of the aggregator, without its certificate.
func refusesOthers(t *testing.T, address string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the answer counts
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for _, path := range []string{ofWeb + "usage", "/apis/access.cloudnative.tw/v1alpha1", "/"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), `"kind":"Status"`) {
			t.Errorf("%s with a forged user: %s %s, %v", path, response.Status, body, err)
		}
	}
}

// An open console of a machine of QEMU ends with the leader that is killed. Once the next manager of the host has the lease,
// the console is there again, with what the machine printed before.
func TestLongConsoleAcrossLeaders(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	if _, err := env.Binary("guest/guest.json"); err != nil {
		t.Skip("SKIP: no default guest: run make guest")
	}
	w := newWorld(t)
	w.apply(t, w.kustomize(t, overlayIn(t, withMachines)))
	kubeconfig := w.kubeconfigOf(t, w.newGate(t), home, account)
	state := "--state-dir=" + filepath.Join(w.dir, "state")
	first := w.startInstalled(t, "first", kubeconfig, harness.FreeAddress(t).String(), "--vm-driver=qemu", state)
	first.AwaitReady(t)
	w.apply(t, "{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: web, namespace: default}, spec: {driver: qemu, resource: {memory: 128Mi}}}")
	w.kubectl(t, "create", "rolebinding", "jane", "--clusterrole", "edit", "--user", "jane")
	w.kubectl(t, "wait", "--for=condition=Ready", "virtualmachine/web", "--timeout=5m")

	jane := rest.CopyConfig(w.admin)
	jane.Impersonate.UserName = "jane"
	before := types(t, jane, "echo before-$((40+2))\n", "before-42")
	killed := time.Now()
	first.Kill(t)
	awaitEnd(t, before)
	next := w.startInstalled(t, "next", kubeconfig, harness.FreeAddress(t).String(), "--vm-driver=qemu", state)
	next.AwaitReady(t)
	types(t, jane, "echo after-$((40+2))\n", "after-42")
	t.Logf("the console is there again %.1f s after the leader was killed; the lease has 15 s", time.Since(killed).Seconds())
	w.kubectl(t, "delete", "virtualmachine", "web", "--timeout", transcript.WaitTimeout.String())
	for _, refused := range w.recordOf(t, "system:serviceaccount:"+home+":"+account).refused {
		t.Errorf("missing permission: %s", refused)
	}
	next.End(t)
}

// types opens the console of the machine web, types a line, and waits for an answer. The session ends with the test.
func types(t *testing.T, config *rest.Config, line, answer string) *websocket.Conn {
	t.Helper()
	var session *websocket.Conn
	transcript.Eventually(t, "the console answers "+answer, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		opened, err := access.Dial(ctx, config, "default", "web", access.Console, nil)
		if err != nil {
			return false
		}
		if opened.Write(ctx, websocket.MessageBinary, []byte("\n"+line)) != nil || !reads(ctx, opened, answer) {
			_ = opened.CloseNow()
			return false
		}
		session = opened
		return true
	})
	t.Cleanup(func() { _ = session.CloseNow() })
	return session
}

// reads reports whether the machine prints a text.
func reads(ctx context.Context, session *websocket.Conn, text string) bool {
	seen := ""
	for !strings.Contains(seen, text) {
		kind, data, err := session.Read(ctx)
		if err != nil {
			return false
		}
		if kind == websocket.MessageBinary {
			seen += string(data)
		}
	}
	return true
}

// awaitEnd waits until a session has ended.
func awaitEnd(t *testing.T, session *websocket.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, _, err := session.Read(ctx); err != nil {
			if ctx.Err() != nil {
				t.Error("the session goes on without its manager")
			}
			return
		}
	}
}
