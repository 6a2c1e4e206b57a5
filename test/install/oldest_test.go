package install

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// What is installed, and a manager, work with an API server that behaves as the oldest Kubernetes that docs/install.md and the
// chart name: it knows no fields, versions and functions of CEL that came later.
func TestLongTheOldestKubernetes(t *testing.T) {
	t.Parallel()
	oldest := regexp.MustCompile(`For Kubernetes (1\.\d+) and newer`).FindStringSubmatch(readPage(t, installPage))
	if oldest == nil {
		t.Fatal("docs/install.md does not say for which Kubernetes it is")
	}
	var metadata struct {
		KubeVersion string `json:"kubeVersion"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(chart, "Chart.yaml"))), &metadata); err != nil || metadata.KubeVersion != ">="+oldest[1]+".0-0" {
		t.Errorf("the chart is for %q: %v", metadata.KubeVersion, err)
	}
	w := newEmulation(t, oldest[1])
	w.namespace(t, home)
	w.apply(t, w.kustomize(t, overlayIn(t, allSwitchedOn)), "--validate=strict")
	address := freeAddress(t)
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
		in("wait", "--for=condition=Ready", object, "--timeout", transcript.Patience.String())
	}
	in("wait", "--for=create", "deployment/example-foo", "--timeout", transcript.Patience.String())
	w.isStrict(t)
	in("delete", "foo,crontab,virtualmachine", "--all", "--timeout", transcript.Patience.String())
}

// newEmulation starts an API server that behaves as one of an earlier version.
func newEmulation(t *testing.T, version string) *world {
	t.Helper()
	cp := env.ControlPlane(t, controlplane.Options{APIOnly: true, APIServerArgs: []string{"--emulated-version=" + version}})
	dir := t.TempDir()
	w := &world{Shell: transcript.Shell{Env: map[string]string{"KUBECONFIG": cp.Kubeconfig(), "HOME": dir}}, dir: dir, admin: cp.Config()}
	major, minor, _ := strings.Cut(version, ".")
	transcript.Contains(t, w.kubectl(t, "get", "--raw", "/version"), `"emulationMajor": "`+major+`"`, `"emulationMinor": "`+minor+`"`)
	return w
}

// isStrict checks that the rules of definitions, webhook and policy hold.
func (w *world) isStrict(t *testing.T) {
	t.Helper()
	refuses := func(what, says string, words ...string) {
		t.Helper()
		transcript.Eventually(t, what, func() bool {
			result := w.Run(transcript.Quietly(t), append([]string{"kubectl"}, words...)...)
			return result.Code == 1 && strings.Contains(result.Stderr, says)
		})
	}
	patch := func(object, spec string) []string {
		return []string{"patch", object, "--namespace", "work", "--type=merge", "--dry-run=server", "-p", `{"spec":` + spec + `}`}
	}
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: safe}, spec: {deletionProtection: true, paused: true}}")
	refuses("the definition refuses", "spec.timeZone", patch("crontab/backup", `{"timeZone":"Mars/Base"}`)...)
	refuses("the webhook refuses", "the range runs backwards", patch("crontab/backup", `{"schedule":"30-10 * * * *"}`)...)
	refuses("the policy refuses", "spec.deletionProtection", "delete", "cluster/safe", "--dry-run=server")
	w.kubectl(t, "patch", "cluster/safe", "--type=merge", "-p", `{"spec":{"deletionProtection":false}}`)
	w.kubectl(t, "delete", "cluster/safe", "--timeout", transcript.Patience.String())
}
