package install

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// The commands of docs/metrics.md and docs/runbooks.md to observe an installation. Its manager runs
// outside of the cluster: no kubelet runs it or serves its log.
func TestLongWatchTheManager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(t, w.kustomize(t, overlayIn(t, allSwitchedOn)))
	w.kubectl(t, "delete", "validatingwebhookconfiguration", "keelson") // no manager serves it
	address := harness.FreeAddress(t).String()
	manager := w.troubled(t, namespaced, "--lease-lock-namespace", home, "--metrics-bind-address", address, "--metrics-secure",
		"--config", configured(t, "metrics: {profiling: true}"))
	manager.Await(t, "Manager is ready")
	w.readsMetrics(t)
	w.readsProfile(t, address)
	w.looksAround(t)
	finish(t, manager)
}

// types runs commands at the root of the repository and returns their output.
func (w *world) types(t *testing.T, block string) string {
	t.Helper()
	variables := append(os.Environ(), "KUBECONFIG="+w.Env["KUBECONFIG"], "KUBECACHEDIR="+w.dir,
		"PATH="+filepath.Dir(binary(t, "keelson"))+":"+os.Getenv("PATH"))
	return typed(t, "../..", variables, block)
}

// readsMetrics lets Prometheus read the metrics as in docs/metrics.md.
func (w *world) readsMetrics(t *testing.T) {
	t.Helper()
	const prometheus = "system:serviceaccount:monitoring:prometheus"
	mayRead := func() bool {
		return w.Run(transcript.Quietly(t), "kubectl", "auth", "can-i", "get", "/metrics", "--quiet", "--as", prometheus).Code == 0
	}
	if mayRead() {
		t.Errorf("%s may read metrics without a role", prometheus)
	}
	w.types(t, commands(t, metricsPage, metricsSection, 0))
	transcript.Eventually(t, "Prometheus may read metrics", mayRead)
}

// readsProfile reads a memory profile of the manager as in docs/metrics.md, as an authorized user.
func (w *world) readsProfile(t *testing.T, address string) {
	t.Helper()
	w.kubectl(t, "create", "serviceaccount", "profiler")
	w.kubectl(t, "create", "clusterrole", "profiler", "--verb=get", "--non-resource-url=/debug/pprof/*")
	w.kubectl(t, "create", "clusterrolebinding", "profiler", "--clusterrole=profiler", "--serviceaccount=default:profiler")
	block := strings.ReplaceAll(commands(t, metricsPage, metricsSection, 1), "HOST:PORT", address)
	heap := filepath.Join(t.TempDir(), "heap")
	block = strings.NewReplacer(">heap", ">"+heap, " heap\n", " "+heap+"\n").Replace(block)
	transcript.Contains(t, w.types(t, "set +x\n"+block), "flat%") // keeps the token out of the log
}

// looksAround runs the commands of docs/runbooks.md, in blocks and in sentences, for faulty
// objects.
func (w *world) looksAround(t *testing.T) {
	t.Helper()
	w.apply(t, `{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: it, namespace: default},
		spec: {driver: fake, image: {container: busybox}}}`) // the driver does not run containers
	w.cronTab(t, "it", "30-10 * * * *")
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: it}}") // no controller works on it
	w.message(t, "Ready=False", "virtualmachine/it")
	w.message(t, "Ready=False", "crontab/it")
	named := strings.NewReplacer("NAMESPACE", "default", "NAME", "it")

	logs := regexp.MustCompile(`(?m)^kubectl -n (\S+) logs (--selector \S+) .*$`)
	block := commands(t, runbooksPage, runbooksSection, 0)
	if !logs.MatchString(block) {
		t.Errorf("no command shows a log in\n%s", block)
	}
	out := w.types(t, logs.ReplaceAllString(block, "kubectl -n $1 get pods $2 -o name"))
	transcript.Contains(t, out, "pod/keelson-manager-", "crontab.stable.example.com/it", "virtualmachine.cloudnative.tw/it", "cluster.clusterprovisioner.rke.io/it")
	transcript.Contains(t, w.types(t, named.Replace(commands(t, runbooksPage, machinesSection, 0))), "runs no containers")

	sentences := regexp.MustCompile("`(kubectl [^`]+)`").FindAllStringSubmatch(readPage(t, runbooksPage), -1)
	typed := 0
	for _, sentence := range sentences {
		command := named.Replace(strings.Join(strings.Fields(sentence[1]), " "))
		if !strings.Contains(command, " logs ") {
			w.types(t, command+"\n")
			typed++
		}
	}
	if typed < 10 {
		t.Errorf("only %d commands in %d sentences were found", typed, len(sentences))
	}
}

// The settings of docs/metrics.md allow traces out of the installation, equally with Helm and with
// an overlay.
func TestTraceEgress(t *testing.T) {
	t.Parallel()
	_, fromChart := rendered(t, "keelson", home, documented(t, metricsPage, "traces.yaml"), withoutDefinitions...)
	w := world{Shell: transcript.Shell{Env: map[string]string{"HOME": t.TempDir()}}}
	fromOverlay := parse(t, w.kustomize(t, overlayIn(t, documented(t, metricsPage, "kustomization.yaml"))))
	var egress [2][]any
	for i, objects := range [][]*unstructured.Unstructured{fromChart, fromOverlay} {
		egress[i], _, _ = unstructured.NestedSlice(find(t, objects, "NetworkPolicy").Object, "spec", "egress")
		if len(egress[i]) != 3 {
			t.Errorf("%d rules: %v", len(egress[i]), egress[i])
		}
		containers, _, _ := unstructured.NestedSlice(find(t, objects, "Deployment").Object, "spec", "template", "spec", "containers")
		if env, _, _ := unstructured.NestedSlice(containers[0].(map[string]any), "env"); !slices.ContainsFunc(env, func(variable any) bool {
			value, _, _ := unstructured.NestedString(variable.(map[string]any), "value")
			return strings.HasPrefix(value, "http://") && strings.HasSuffix(value, ":4318")
		}) {
			t.Errorf("no traces are sent: %v", env)
		}
	}
	if diff := cmp.Diff(egress[0], egress[1]); diff != "" {
		t.Errorf("egress of the manager (-Helm +overlay):\n%s", diff)
	}
}

// configured returns the path of a configuration with these fields.
func configured(t *testing.T, fields string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keelson.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\n"+fields+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// find returns the manager's object of a kind.
func find(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == account {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, account)
	return nil
}
