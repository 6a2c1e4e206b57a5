package install

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/files"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// The installation and a manager work with an API server that emulates the oldest Kubernetes
// version of docs/install.md and the chart: without later fields, API versions and CEL functions.
func TestLongOldestKubernetes(t *testing.T) {
	t.Parallel()
	oldest := regexp.MustCompile(`For Kubernetes (1\.\d+) and newer`).FindStringSubmatch(readPage(t, installPage))
	if oldest == nil {
		t.Fatal("docs/install.md does not name a Kubernetes version")
	}
	var metadata struct {
		KubeVersion string `json:"kubeVersion"`
	}
	if err := yaml.Unmarshal([]byte(files.Read(t, filepath.Join(chart, "Chart.yaml"))), &metadata); err != nil || metadata.KubeVersion != ">="+oldest[1]+".0-0" {
		t.Errorf("the chart is for %q: %v", metadata.KubeVersion, err)
	}
	w := newEmulation(t, oldest[1])
	w.namespace(t, home)
	w.apply(t, w.kustomize(t, overlayIn(t, allSwitchedOn)), "--validate=strict")
	address := harness.FreeAddress(t).String()
	w.callDirectly(t, "keelson", address)
	manager := managers.Start(t, "manager", "--kubeconfig", w.Env["KUBECONFIG"], "--vm-driver=fake", "--state-dir", filepath.Join(w.dir, "state"),
		"--metrics-bind-address=0", "--secret-namespace", home, "--lease-lock-namespace", home, "--leader-elect",
		"--webhook-bind-address", address, "--webhook-service-namespace", home)
	manager.AwaitReady(t)
	w.namespace(t, "work")
	in := func(words ...string) string {
		t.Helper()
		return w.kubectl(t, append([]string{"--namespace", "work"}, words...)...)
	}
	in("create", "-f", "../../examples/manifests/foo.yaml", "-f", "../../examples/manifests/crontab-backup.yaml")
	w.apply(t, "{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: it, namespace: work}, spec: {driver: fake}}")
	for _, object := range []string{"crontab/backup", "virtualmachine/it"} {
		in("wait", "--for=condition=Ready", object, "--timeout", transcript.WaitTimeout.String())
	}
	in("wait", "--for=create", "deployment/example-foo", "--timeout", transcript.WaitTimeout.String())
	w.isStrict(t)
	in("delete", "foo,crontab,virtualmachine", "--all", "--timeout", transcript.WaitTimeout.String())
}

// newEmulation starts an API server that emulates an earlier version.
func newEmulation(t *testing.T, version string) *world {
	t.Helper()
	cp := env.ControlPlane(t, controlplane.Options{APIOnly: true, APIServerArgs: []string{"--emulated-version=" + version}})
	dir := t.TempDir()
	w := &world{Shell: transcript.Shell{Env: map[string]string{"KUBECONFIG": cp.Kubeconfig(), "HOME": dir}}, dir: dir, admin: cp.Config()}
	major, minor, _ := strings.Cut(version, ".")
	transcript.Contains(t, w.kubectl(t, "get", "--raw", "/version"), `"emulationMajor": "`+major+`"`, `"emulationMinor": "`+minor+`"`)
	return w
}

// isStrict checks that the rules of CRDs, webhook and policy are effective.
func (w *world) isStrict(t *testing.T) {
	t.Helper()
	refuses := func(what, want string, words ...string) {
		t.Helper()
		transcript.Eventually(t, what, func() bool {
			result := w.Run(transcript.Quietly(t), append([]string{"kubectl"}, words...)...)
			return result.Code == 1 && strings.Contains(result.Stderr, want)
		})
	}
	patch := func(object, spec string) []string {
		return []string{"patch", object, "--namespace", "work", "--type=merge", "--dry-run=server", "-p", `{"spec":` + spec + `}`}
	}
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: safe}, spec: {deletionProtection: true, paused: true}}")
	refuses("the CRD rejects", "spec.timeZone", patch("crontab/backup", `{"timeZone":"Mars/Base"}`)...)
	refuses("the webhook rejects", "the range runs backwards", patch("crontab/backup", `{"schedule":"30-10 * * * *"}`)...)
	refuses("the policy rejects", "spec.deletionProtection", "delete", "cluster/safe", "--dry-run=server")
	w.kubectl(t, "patch", "cluster/safe", "--type=merge", "-p", `{"spec":{"deletionProtection":false}}`)
	w.kubectl(t, "delete", "cluster/safe", "--timeout", transcript.WaitTimeout.String())
}
