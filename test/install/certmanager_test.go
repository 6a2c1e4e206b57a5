//go:build certmanager

package install

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// authority is a persistent issuer, as docs/operations.md recommends.
const authority = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: itself, namespace: keelson-system}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: my-authority, namespace: keelson-system}
spec: {isCA: true, commonName: my-authority, secretName: my-authority, issuerRef: {name: itself}, privateKey: {algorithm: ECDSA}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: my-authority, namespace: keelson-system}
spec: {ca: {secretName: my-authority}}
---
`

// With the controllers of cert-manager, the Certificate and the values of docs/operations.md
// suffice: the API server trusts a manager that serves the certificate of the Secret. make
// certmanager runs it.
func TestCertManager(t *testing.T) {
	t.Parallel()
	cp := env.ControlPlane(t, controlplane.Options{APIOnly: true})
	dir := t.TempDir()
	w := &world{Shell: transcript.Shell{Env: map[string]string{"KUBECONFIG": cp.Kubeconfig(), "HOME": dir}}, dir: dir, admin: cp.Config()}
	env.Define(t, w.admin)
	w.namespace(t, home)
	w.startCertManager(t)

	certificate, values := operationsBlock(t, "apiVersion: cert-manager.io/v1\nkind: Certificate"), operationsBlock(t, "# values of the chart")
	// The API server calls a process on this host.
	w.apply(t, authority+certificate+"  ipAddresses: [127.0.0.1]\n")
	_, objects := rendered(t, "keelson", home, values, withoutDefinitions...)
	configuration, err := byName(objects)["ValidatingWebhookConfiguration keelson"].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(configuration))
	address := harness.FreeAddress(t).String()
	w.callDirectly(t, "keelson", address)
	w.Until(transcript.Quietly(t), "caBundle is filled in", transcript.Not(""), "kubectl", "get", "validatingwebhookconfiguration", "keelson",
		"-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")

	volume := filepath.Join(dir, "volume")
	w.mount(t, "keelson-webhook", volume)
	manager := w.troubled(t, "crontab", "--leader-elect=false", "--webhook-bind-address="+address, "--webhook-cert-dir="+volume)
	manager.Await(t, "Manager is ready")
	transcript.Eventually(t, "the API server trusts the manager", func() bool {
		s := w.Shell
		s.Stdin = `{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: it, namespace: default}, spec: {schedule: "30-10 * * * *",
			jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b}]}}}`
		result := s.Run(t, "kubectl", "create", "--dry-run=server", "-f", "-")
		return strings.Contains(result.Stderr, "the range runs backwards")
	})
	finish(t, manager)
}

// operationsBlock returns the block of docs/operations.md with that beginning.
func operationsBlock(t *testing.T, beginning string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile("(?s)```yaml\n(" + regexp.QuoteMeta(beginning) + "\n.*?)```").FindStringSubmatch(string(page))
	if match == nil {
		t.Fatalf("docs/operations.md has no block that begins with %q", beginning)
	}
	return match[1]
}

// startCertManager runs the controllers of cert-manager, built by make certmanager, until the end
// of the test.
func (w *world) startCertManager(t *testing.T) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
	list.Dir = "certmanager"
	sources, err := list.Output()
	if err != nil {
		t.Fatalf("find the sources of cert-manager: %v\n%s", err, stderrOf(err))
	}
	w.kubectl(t, "apply", "--server-side", "-f", filepath.Join(strings.TrimSpace(string(sources)), "deploy", "crds"))
	w.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout", transcript.WaitTimeout.String())
	running := w.Start(t, "certmanager", w.Env["KUBECONFIG"])
	t.Cleanup(func() { finish(t, running) })
}

// mount waits for a Secret with a certificate, and writes its files as a Pod would see them.
func (w *world) mount(t *testing.T, secret, dir string) {
	t.Helper()
	w.kubectl(t, "wait", "--for=create", "secret/"+secret, "--namespace", home, "--timeout", transcript.WaitTimeout.String())
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"tls.crt", "tls.key"} {
		text := w.OK(transcript.Quietly(t), "kubectl", "get", "secret", secret, "--namespace", home, "-o", "jsonpath={.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%s of the Secret %s: %d bytes, %v", key, secret, len(raw), err)
		}
		if err := os.WriteFile(filepath.Join(dir, key), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
