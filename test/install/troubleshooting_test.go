package install

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// Symptoms in docs/troubleshooting.md.
const (
	unseen      = "an object has no conditions"
	ended       = "the manager exits immediately with exit code 1"
	killed      = "the manager is terminated with `OOMKilled`" // by the kernel, as the kubelet reports
	unready     = "`Ready` is False"
	unasked     = "an invalid field was accepted, and a condition reports it"
	bundleless  = "`caBundle` of the configuration is empty"
	untrusted   = "kube-apiserver logs `x509: certificate signed by unknown authority` about the webhook"
	unsteady    = "the leader changes repeatedly"
	terminating = "a namespace stays in Terminating"
	late        = "Jobs are late or missing"
)

// Every symptom in the table occurs, with the quoted messages.
func TestLongTroubleshooting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	messages := map[string]string{killed: ""}
	w.endsAtOnce(t, messages)
	w.isUnseenOrRefused(t, messages)
	w.isUnasked(t, messages)
	w.isUntrusted(t, messages)
	w.isUnsteady(t, messages)

	for symptom, quotes := range symptoms(t) {
		text, ok := messages[symptom]
		if !ok {
			t.Errorf("no test has the symptom: %s", symptom)
		}
		for _, quote := range quotes {
			if !strings.Contains(text, quote) {
				t.Errorf("%s: no message contains %q:\n%s", symptom, quote, text)
			}
		}
		delete(messages, symptom)
	}
	for symptom := range messages {
		t.Errorf("docs/troubleshooting.md has no row for: %s", symptom)
	}
}

// symptoms returns the rows of the table in docs/troubleshooting.md, with the messages that they quote.
func symptoms(t *testing.T) map[string][]string {
	t.Helper()
	_, section, _ := strings.Cut(readPage(t, "troubleshooting.md"), "\n## Symptoms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	all := map[string][]string{}
	for row := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		symptom, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		all[symptom] = nil
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row, -1) {
			if strings.Contains(span[1], " ") && !strings.HasPrefix(span[1], "kubectl ") {
				all[symptom] = append(all[symptom], span[1])
			}
		}
	}
	return all
}

// namespaced are the controllers that do not depend on this host.
const namespaced = "foo,crontab,virtualmachine"

// troubled starts a manager that will fail.
func (w *world) troubled(t *testing.T, controllers string, flags ...string) *transcript.Running {
	t.Helper()
	s := w.Shell
	s.Env = map[string]string{"HOME": w.dir}
	return s.Start(t, append([]string{
		"keelson", "manager", "--kubeconfig", w.Env["KUBECONFIG"], "--health-probe-bind-address=0", "--metrics-bind-address=0",
		"--state-dir", filepath.Join(w.dir, "troubled"), "--vm-driver=fake", "--leader-elect", "--controllers", controllers,
	}, flags...)...)
}

// finish stops a manager.
func finish(t *testing.T, manager *transcript.Running) {
	t.Helper()
	manager.Signal(t, syscall.SIGTERM)
	if result := manager.Wait(t); result.Code != 0 {
		t.Errorf("a manager exited with code %d", result.Code)
	}
}

func (w *world) endsAtOnce(t *testing.T, messages map[string]string) {
	t.Helper()
	fails := func(flags ...string) {
		t.Helper()
		result := w.troubled(t, namespaced, flags...).Wait(t)
		if result.Code != 1 {
			t.Errorf("a manager with %q exited with code %d", flags, result.Code)
		}
		messages[ended] += result.Stdout
	}
	fails() // no CRDs exist yet
	env.Define(t, w.admin)
	w.kubectl(t, "create", "serviceaccount", "nobody")
	fails("--kubeconfig", w.kubeconfigOf(t, w.newGate(t), "default", "nobody"))
	here := &clientcmdapi.Cluster{Server: w.admin.Host, CertificateAuthority: w.admin.CAFile, CertificateAuthorityData: w.admin.CAData}
	path := filepath.Join(w.dir, "wrong.kubeconfig")
	writeKubeconfig(t, path, "default", here, &clientcmdapi.AuthInfo{Token: "over"})
	fails("--kubeconfig", path)
	writeKubeconfig(t, path, "default", &clientcmdapi.Cluster{Server: "https://" + harness.FreeAddress(t).String()}, &clientcmdapi.AuthInfo{Token: "any"})
	fails("--kubeconfig", path, "--config", configured(t, "preflight: {timeout: 1s}"))
}

// message waits for a condition of an object and returns its message.
func (w *world) message(t *testing.T, condition, object string) string {
	t.Helper()
	w.kubectl(t, "wait", "--for=condition="+condition, object, "--timeout", transcript.WaitTimeout.String())
	kind, _, _ := strings.Cut(condition, "=")
	return w.kubectl(t, "get", object, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].message}`)
}

// cronTab creates a CronTab that runs every second, or with another schedule.
func (w *world) cronTab(t *testing.T, name, schedule string) {
	t.Helper()
	w.apply(t, `{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: `+name+`, namespace: default},
		spec: {schedule: "`+schedule+`", jobTemplate: {restartPolicy: Never, containers: [{name: a, image: busybox}]}}}`)
}

// isUnseenOrRefused runs a manager without the controller of Foos, where no Jobs may be created.
func (w *world) isUnseenOrRefused(t *testing.T, messages map[string]string) {
	t.Helper()
	w.kubectl(t, "create", "quota", "none", "--hard=count/jobs.batch=0")
	w.Until(t, "no Job may be created", func(string) bool {
		return w.Run(transcript.Quietly(t), "kubectl", "create", "job", "probe", "--image", "busybox", "--dry-run=server").Code != 0
	}, "kubectl", "get", "quota", "none")
	w.kubectl(t, "create", "-f", "../../examples/manifests/foo.yaml")
	w.cronTab(t, "refused", "@every 1s")
	manager := w.troubled(t, "crontab")
	messages[late] = w.message(t, "Ready=False", "crontab/refused")
	if status := w.kubectl(t, "get", "foo", "example-foo", "-o", "jsonpath={.status}"); status != "" {
		t.Errorf("a Foo without a controller has the status %s", status)
	}
	messages[unseen] = ""
	finish(t, manager)
	w.kubectl(t, "delete", "crontab/refused", "quota/none")
}

// isUnasked runs managers without a webhook although there is a configuration, and with one but
// without a configuration of that name. In between no manager runs, and a namespace is deleted.
func (w *world) isUnasked(t *testing.T, messages map[string]string) {
	t.Helper()
	w.apply(t, w.OK(transcript.Quietly(t), "keelson", "manifests", "webhook", "--webhook-service-namespace=default"))
	w.cronTab(t, "backwards", "30-10 * * * *")
	w.kubectl(t, "delete", "foo", "example-foo")
	w.kubectl(t, "create", "deployment", "example-foo", "--image", "busybox", "--replicas", "0")
	w.kubectl(t, "create", "-f", "../../examples/manifests/foo.yaml")
	w.namespace(t, "gone")
	w.apply(t, "{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: it, namespace: gone}, spec: {driver: fake}}")
	manager := w.troubled(t, namespaced)
	messages[unasked] = w.message(t, "Ready=False", "crontab/backwards")
	messages[unready] = w.message(t, "Ready=False", "foo/example-foo")
	w.kubectl(t, "wait", "--for=condition=Ready", "virtualmachine/it", "--namespace", "gone", "--timeout", transcript.WaitTimeout.String())
	finish(t, manager)

	w.kubectl(t, "delete", "namespace", "gone", "--wait=false")
	messages[terminating] = w.Until(t, "the namespace reports what is left", func(messages string) bool { return strings.Contains(messages, "finalizers") },
		"kubectl", "get", "namespace", "gone", "-o", "jsonpath={.status.conditions[*].message}")
	manager = w.troubled(t, namespaced, "--webhook-bind-address="+harness.FreeAddress(t).String(), "--webhook-configuration=other", "--webhook-service-namespace=default")
	w.kubectl(t, "wait", "--for=delete", "virtualmachine/it", "--namespace", "gone", "--timeout", transcript.WaitTimeout.String())
	manager.Await(t, "Webhook certificates")
	finish(t, manager)
	messages[bundleless] = manager.Text()
}

// isUntrusted runs a manager whose certificate is of another authority than the configuration's.
func (w *world) isUntrusted(t *testing.T, messages map[string]string) {
	t.Helper()
	address, certificates := harness.FreeAddress(t).String(), filepath.Join(w.dir, "certificates")
	writeCertificate(t, certificates)
	authority := base64.StdEncoding.EncodeToString(w.authority(t))
	w.kubectl(t, "patch", "validatingwebhookconfiguration", "keelson", "--type=json",
		"-p", `[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "`+authority+`"}]`)
	w.callDirectly(t, "keelson", address)
	manager := w.troubled(t, namespaced, "--webhook-bind-address="+address, "--webhook-cert-dir="+certificates)
	manager.Await(t, "Manager is ready")
	log := filepath.Join(filepath.Dir(w.Env["KUBECONFIG"]), "logs", "kube-apiserver.log")
	transcript.Eventually(t, "the API server does not trust the webhook", func() bool {
		w.OK(transcript.Quietly(t), "kubectl", "create", "--dry-run=server", "-f", "../../examples/manifests/crontab-backup.yaml")
		raw, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		messages[untrusted] = string(raw[max(0, len(raw)-20000):])
		return strings.Contains(messages[untrusted], "x509:")
	})
	finish(t, manager)
}

// isUnsteady runs one manager after another, as a kubelet does, with an API server that becomes too
// slow for their renew deadline once they lead, and then one with a longer deadline and the same
// API server.
func (w *world) isUnsteady(t *testing.T, messages map[string]string) {
	t.Helper()
	proxy := apiproxy.New(t, w.admin, 1)
	slow := apiproxy.Faults{Latency: 2 * time.Second}
	leads := func(flags ...string) *transcript.Running {
		t.Helper()
		proxy.Set(apiproxy.Faults{})
		manager := w.troubled(t, namespaced, append(flags, "--retry-period=200ms", "--kubeconfig", proxy.Kubeconfig(t))...)
		manager.Await(t, "Took the lease")
		proxy.Set(slow)
		return manager
	}
	for range 2 {
		result := leads("--lease-duration=3s", "--renew-deadline=1s").Wait(t)
		if result.Code != 1 {
			t.Errorf("a manager that has lost its lease exited with code %d", result.Code)
		}
		messages[unsteady] += result.Stdout
	}
	manager := leads("--lease-duration=15s", "--renew-deadline=10s")
	begun := time.Now()
	transcript.Eventually(t, "a manager with a longer deadline keeps its lease", func() bool {
		return slices.ContainsFunc(proxy.Requests(), func(r apiproxy.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.Path, "/leases/") && r.Code == http.StatusOK && r.At.Sub(begun) > slow.Latency
		})
	})
	proxy.Set(apiproxy.Faults{})
	finish(t, manager)
}

// writeCertificate creates a directory with a certificate for this host that is not signed by an
// authority of the cluster.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// authority returns the authority of the API server, as PEM.
func (w *world) authority(t *testing.T) []byte {
	t.Helper()
	if len(w.admin.CAData) > 0 {
		return w.admin.CAData
	}
	raw, err := os.ReadFile(w.admin.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
