package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

const chart = "../../charts/keelson"

// tools are the paths of pinned programs, built at their first use.
var tools = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

func tool(t *testing.T, modfile, name string) string {
	t.Helper()
	tools.Lock()
	defer tools.Unlock()
	if tools.paths[name] == "" {
		out, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../"+modfile, "-n", name).Output()
		if err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, stderrOf(err))
		}
		tools.paths[name] = strings.TrimSpace(string(out))
	}
	return tools.paths[name]
}

func stderrOf(err error) string {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// helm runs helm and returns its error.
func helm(t *testing.T, kubeconfig string, words ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "go.helm.mod", "helm"), words...)
	home := t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + kubeconfig}
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s", strings.Join(words, " "), err, stderrOf(err))
	}
	return string(out), err
}

// valueSets are sets of values by their purpose.
var valueSets = map[string]string{
	"defaults": "",
	"minimal": `
replicas: 1
controllers: {foo: true, sampleresource: false, crontab: false, cluster: false, kubeconfig: false, virtualmachine: false}
rbac: {aggregate: false}
crds: {install: false}
admission: {create: false}
webhook: {create: false}
priorityClass: {create: false}
podDisruptionBudget: {create: false}
networkPolicy: {create: false}
`,
	"everything": `
image: {repository: "images.example:5000/keelson", digest: "sha256:` + strings.Repeat("a", 64) + `", pullPolicy: Always}
imagePullSecrets: [{name: pull}]
fullnameOverride: other
replicas: 3
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 4s}
logging: {format: text, verbosity: 4}
extraArgs: ["--threads=32", "--vm-driver=docker", "--vm-docker-host=tcp://docker.example:2376"]
config: {virtualMachines: {egress: none}}
env: [{name: GOGC, value: "100"}]
resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}
podLabels: {team: platform}
podAnnotations: {note: "yes"}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: DoesNotExist}]}]}}}
controllers: {virtualmachine: true}
stateVolume: {persistentVolumeClaim: {claimName: state}}
extraVolumes: [{name: rke, emptyDir: {}}]
extraVolumeMounts: [{name: rke, mountPath: /etc/keelson/rke}]
serviceAccount: {annotations: {note: "yes"}}
priorityClass: {value: 5}
networkPolicy: {apiServerPorts: [16443], extraEgress: [{ports: [{port: 2376, protocol: TCP}]}]}
`,
	"metrics": `
metrics:
  port: 9090
  portName: https-metrics
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  serviceMonitor: {create: true, labels: {release: prometheus}, interval: 15s}
  rules: {create: true, labels: {release: prometheus}}
  dashboard: {create: true}
`,
	"metrics without an operator": `
metrics: {service: {create: true}}
`,
	"no limit": `
resources: {limits: null}
`,
	"external certificates": `
metrics:
  certSecret: metrics
  serviceMonitor: {create: true, tlsConfig: {insecureSkipVerify: false, serverName: keelson-metrics.operations.svc, ca: {secret: {name: metrics, key: ca.crt}}}}
webhook: {certSecret: webhook, annotations: {cert-manager.io/inject-ca-from: operations/webhook}}
env: [{name: GOMEMLIMIT, value: 300MiB}]
`,
	"console": `
console: {enabled: true, publicURLs: ["https://keelson.example.com", "http://localhost:8090"]}
controllers: {virtualmachine: true}
access: {create: false}
`,
	"all kinds": `
controllers: {cluster: true, virtualmachine: true}
driverPod: {enabled: false}
`,
	"machines in Pods": `
controllers: {virtualmachine: true}
driverPod: {launcherImage: "images.example/keelson-launcher:v1", guestImage: "images.example/keelson-guest:v1"}
`,
	"machines in Pods with the images of the release": `
image: {repository: images.example/keelson, tag: v2}
controllers: {virtualmachine: true}
`,
	"machines of another driver": `
controllers: {virtualmachine: true}
driverPod: {enabled: false}
extraArgs: [--vm-driver=docker]
`,
	"two namespaces": `
namespaces: [team-a, team-b]
controllers: {kubeconfig: false, virtualmachine: true}
`,
	"two namespaces without cluster-scoped kinds": `
namespaces: [team-a, team-b]
controllers: {kubeconfig: false}
priorityClass: {create: false, name: high}
crds: {install: false}
admission: {create: false}
rbac: {aggregate: false}
`,
}

// withoutDefinitions are arguments of helm for a test that is not about the definitions, which take a second.
var withoutDefinitions = []string{"--set", "crds.install=false"}

// rendered renders the chart with values.
func rendered(t *testing.T, release, namespace, values string, args ...string) (string, []*unstructured.Unstructured) {
	t.Helper()
	text := renderedText(t, release, namespace, values, args...)
	return text, parse(t, text)
}

func renderedText(t *testing.T, release, namespace, values string, args ...string) string {
	t.Helper()
	words := append([]string{"template", release, chart, "--namespace", namespace, "--values", valuesIn(t, values)}, args...)
	text, err := helm(t, "/nowhere", words...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func valuesIn(t *testing.T, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml") // helm splits a list of files at commas
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		known, found := parsed.Load(document)
		if !found {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				t.Fatalf("%v in\n%s", err, document)
			}
			known, _ = parsed.LoadOrStore(document, o)
		}
		if o := known.(*unstructured.Unstructured); len(o.Object) > 0 {
			all = append(all, o.DeepCopy())
		}
	}
	return all
}

// parsed are the objects of documents. Each manifest has the same long CRDs, which take a second.
var parsed sync.Map

// Without other images, machines in Pods have those of the release that the manager is of.
func TestChartHasImagesOfTheRelease(t *testing.T) {
	t.Parallel()
	text := renderedText(t, "keelson", home, valueSets["machines in Pods with the images of the release"], withoutDefinitions...)
	for _, flag := range []string{"--vm-launcher-image=images.example/keelson-launcher:v2", "--vm-guest-image=images.example/keelson-guest:v2"} {
		if !strings.Contains(text, flag) {
			t.Errorf("the manager has no flag %s", flag)
		}
	}
}

func TestChartIsCleanAndValid(t *testing.T) {
	t.Parallel()
	manifests := examples(t)
	for name, values := range valueSets {
		var args []string
		if name != "defaults" {
			args = withoutDefinitions
		}
		if out, err := helm(t, "/nowhere", append([]string{"lint", "--strict", chart, "--values", valuesIn(t, values)}, args...)...); err != nil {
			t.Errorf("%s: %s%v", name, out, err)
		}
		manifests["the chart with the values: "+name] = renderedText(t, "keelson", home, values, args...)
	}
	const misspelt = "the chart with a misspelt field"
	manifests[misspelt] = strings.Replace(manifests["the chart with the values: defaults"], "enableServiceLinks: false", "enableServiceLink: false", 1)
	found := nonconformities(t, newSchemas(t), manifests)
	if got := strings.Join(found[misspelt], "\n"); !strings.Contains(got, "enableServiceLink") {
		t.Errorf("%s: found %q", misspelt, got)
	}
	delete(found, misspelt)
	for name, problems := range found {
		t.Errorf("%s: %s", name, strings.Join(problems, "\n"))
	}
}

// The chart installs the same objects as the base, and with metrics those of the component, except
// for labels, annotations and additional flags.
func TestChartIsTheBase(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ kustomization, values string }{
		"the base": {"resources: [../keelson/config/default]", ""},
		"with VirtualMachines": {
			"resources: [../keelson/config/default]\ncomponents: [../keelson/config/kinds/virtualmachine]",
			"controllers: {virtualmachine: true}\ndriverPod: {enabled: false}",
		},
		"with Clusters": {
			"resources: [../keelson/config/default]\ncomponents: [../keelson/config/kinds/cluster]",
			"controllers: {cluster: true}",
		},
		"with the console": {
			"resources: [../keelson/config/default, ../keelson/config/console]",
			"console: {enabled: true, publicURLs: [\"https://keelson.example.com\"]}",
		},
		"with machines in Pods": {
			documented(t, podsPage, "pods/kustomization.yaml"),
			"image: {repository: images.example/keelson, tag: v1}\n" + documented(t, podsPage, "pods.yaml"),
		},
		"with all kinds": {allSwitchedOn, valueSets["all kinds"]},
		"with the component for metrics": {
			"resources: [../keelson/config/default]\ncomponents: [../keelson/config/monitoring]",
			"metrics: {serviceMonitor: {create: true}, rules: {create: true}, dashboard: {create: true}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := transcript.Shell{Env: map[string]string{"HOME": t.TempDir()}}
			ofBase := byName(parse(t, cmd.OK(transcript.Quietly(t), "kubectl", "kustomize", overlayIn(t, tt.kustomization))))
			delete(ofBase, "Namespace "+home)
			var args []string
			if name != "the base" {
				args = withoutDefinitions
				maps.DeleteFunc(ofBase, func(_ string, o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
			}
			_, objects := rendered(t, "keelson", home, tt.values, args...)
			ofChart := byName(objects)
			for name := range ofBase {
				if ofChart[name] == nil {
					t.Errorf("the chart has no %s", name)
				}
			}
			for name, object := range ofChart {
				if ofBase[name] == nil {
					t.Errorf("the base has no %s", name)
					continue
				}
				base, chart := plain(ofBase[name]), plain(object)
				if !reflect.DeepEqual(base, chart) { // cmp takes a second for a CRD
					t.Errorf("%s (-base +chart):\n%s", name, cmp.Diff(base, chart))
				}
			}
		})
	}
}

func byName(all []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	named := map[string]*unstructured.Unstructured{}
	for _, o := range all {
		named[o.GetKind()+" "+o.GetName()] = o
	}
	return named
}

// plain returns an object without the expected differences. Rules are split into individual
// permissions.
func plain(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	if o.GetKind() == "ClusterRole" || o.GetKind() == "Role" {
		singles := map[string]bool{}
		for _, g := range grantsIn(o) {
			singles[g.String()] = true
		}
		return map[string]any{"rules": singles}
	}
	remove(o.Object, "app.kubernetes.io/instance")
	if webhooks, ok := o.Object["webhooks"].([]any); ok { // all are called, in any order
		slices.SortFunc(webhooks, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
	}
	if o.GetKind() == "Deployment" {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		container := containers[0].(map[string]any)
		container["args"] = slices.DeleteFunc(container["args"].([]any), func(arg any) bool {
			flag, _, _ := strings.Cut(arg.(string), "=")
			return slices.Contains([]string{"--v", "--controllers", "--lease-duration", "--renew-deadline", "--retry-period", "--webhook-service", "--webhook-configuration", "--access-service"}, flag)
		})
		_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers") // they exist
	}
	return o.Object
}

func remove(part any, key string) {
	switch part := part.(type) {
	case map[string]any:
		delete(part, key)
		for _, inner := range part {
			remove(inner, key)
		}
	case []any:
		for _, inner := range part {
			remove(inner, key)
		}
	}
}

func TestInvalidChartValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values string
		want   []string
	}{
		"negative replicas":                       {"replicas: -1", []string{"/replicas", "minimum"}},
		"unknown value":                           {"replica: 1", []string{"replica"}},
		"unknown controller":                      {"controllers: {bar: true}", []string{"bar"}},
		"rejection of an enabled kind":            {"admission: {refuse: [foo]}", []string{"/admission/refuse/0"}},
		"text for a boolean":                      {"crds: {install: sometimes}", []string{"/crds/install", "boolean"}},
		"invalid duration":                        {"leaderElection: {leaseDuration: 15}", []string{"/leaderElection/leaseDuration"}},
		"invalid namespace":                       {"namespaces: [Team]", []string{"/namespaces/0"}},
		"no controllers":                          {"controllers: {foo: false, sampleresource: false, crontab: false, cluster: false, kubeconfig: false, virtualmachine: false}", []string{"turn at least one on"}},
		"cluster-scoped kinds in some namespaces": {"namespaces: [team]", []string{"controllers.cluster", "controllers.kubeconfig"}},
		"argument that is not a flag":             {"extraArgs: [threads]", []string{"/extraArgs/0"}},
		"tag instead of a digest":                 {"image: {digest: latest}", []string{"/image/digest"}},
		"priority reserved for the system":        {"priorityClass: {value: 2000000000}", []string{"/priorityClass/value"}},
		"console without a URL":                   {"console: {enabled: true}", []string{"console.publicURLs"}},
		"URL of the console with a path":          {"console: {publicURLs: ['https://a/b']}", []string{"/console/publicURLs/0"}},
		"port in use by the manager":              {"metrics: {port: 9443}", []string{"/metrics/port"}},
		"invalid port name":                       {"metrics: {portName: Metrics}", []string{"/metrics/portName"}},
		"address for the port of a NetworkPolicy": {"networkPolicy: {apiServerPorts: ['1.2.3.4:443']}", []string{"/networkPolicy/apiServerPorts/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "/nowhere", "template", "keelson", chart, "--values", valuesIn(t, tt.values))
			if err == nil {
				t.Fatal("it is accepted")
			}
			transcript.Contains(t, err.Error(), tt.want...)
		})
	}
}

// A namespaced installation by Helm has exactly the permissions that its manager uses.
func TestLongPermissionsInNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// One transcript for what each kind does. TestSmokePermissionsOfTheInstallation runs all of them.
	names := []string{"TestSmokeFoo", "TestSmokeFooWithRenamedDeployment", "TestSmokeFooLeavesForeignDeploymentsAlone", "TestSmokeSampleResource",
		"TestSmokeSampleResourceReplacesFailedPod", "TestSmokeSampleResourceLeavesForeignPodsAlone", "TestSmokeCronTab", "TestSmokeVirtualMachineInMemory", "TestSmokeVirtualMachineOfASecret",
		"TestSmokeServiceOfVirtualMachine", "TestSmokeVirtualMachineSet", "TestSmokeWebhookRejects"}
	var namespaces []string
	for _, name := range names {
		namespace := "e2e-" + strings.ToLower(name) + "-some"
		w.namespace(t, namespace)
		namespaces = append(namespaces, namespace)
	}
	w.namespace(t, "rare")
	namespaces = append(namespaces, "rare")
	values, err := json.Marshal(map[string]any{"namespaces": namespaces, "controllers": map[string]bool{"kubeconfig": false, "virtualmachine": true},
		"driverPod": map[string]bool{"enabled": false}})
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "operations"
	if out, err := helm(t, w.Env["KUBECONFIG"], "install", "mine", chart, "--namespace", namespace, "--create-namespace", "--wait",
		"--values", valuesIn(t, string(values))); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	const account = "mine-keelson-manager"
	const user = "system:serviceaccount:" + namespace + ":" + account
	g := w.newGate(t)
	state := w.startManager(t, w.kubeconfigOf(t, g, namespace, account), user, namespace, "mine-keelson",
		"--namespaces="+strings.Join(namespaces, ","), "--controllers=*,-cluster,-kubeconfig")
	w.runTranscripts(t, state, "mine-keelson", "some", names...)
	w.rarely(t, g, user, "rare")
	w.judge(t, user, namespaces...)
}
