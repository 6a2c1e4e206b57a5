package install

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/steady"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// live has the objects of an installation during an upgrade.
const live = `
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: web, namespace: live}
spec: {deploymentName: web, replicas: 2}
---
apiVersion: example.com/v1
kind: SampleResource
metadata: {name: sample, namespace: live}
spec: {podImage: "nginx:1"}
---
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: often, namespace: live}
spec:
  schedule: "@every 1s"
  successfulJobsHistoryLimit: 1000
  missedRuns: All
  maxMissedRuns: 100
  jobTemplate: {restartPolicy: Never, containers: [{name: a, image: b}]}
`

// newField is a field that the CRD of the previous version did not have.
const newField = "jitter"

// upgradedWhileItWorks upgrades a release to other values and to CRDs with a new field, while its
// manager works with the permissions of its service account, and replaces that manager like a
// rollout. Its objects stay unchanged. test/soak/upgrade shows that a manager of an earlier version
// can be replaced.
func upgradedWhileItWorks(t *testing.T, w *world, c checkout) {
	w.namespace(t, "live")
	w.takeBack(t, "crontabs.stable.example.com")
	kubeconfig := w.kubeconfigOf(t, w.newGate(t), home, account)
	before := w.startInstalled(t, "before", kubeconfig, harness.FreeAddress(t).String())
	before.AwaitReady(t)
	w.apply(t, live)
	objects := &steady.Objects{
		Config: w.admin, Namespace: "live",
		Kinds: []schema.GroupVersionResource{
			{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"},
			{Group: "example.com", Version: "v1", Resource: "sampleresources"},
			{Group: "stable.example.com", Version: "v1", Resource: "crontabs"},
		},
		Children: []schema.GroupVersionResource{
			appsv1.SchemeGroupVersion.WithResource("deployments"), appsv1.SchemeGroupVersion.WithResource("replicasets"), corev1.SchemeGroupVersion.WithResource("pods"),
		},
	}
	was, bundle := objects.AwaitStill(t, 5*time.Second), w.bundle(t)
	flaps := objects.WatchReady(t)

	if out, err := helm(t, w.Env["KUBECONFIG"], "upgrade", "keelson", chart, "--namespace", home, "--wait", "--values", filepath.Join(c.dir, "values.yaml"),
		"--set", "replicas=3,logging.verbosity=1,leaderElection.leaseDuration=20s,leaderElection.renewDeadline=12s"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	webhook := harness.FreeAddress(t).String()
	next := w.startInstalled(t, "next", kubeconfig, webhook)
	transcript.Eventually(t, "the next one is ready to take over", func() bool { return strings.Contains(next.Log(), "waiting for the lease") })
	before.Signal(t, syscall.SIGTERM)
	before.AwaitDone(t)
	next.AwaitReady(t)
	// The simulated Pods do not respond, so a change to a CronTab would wait for the API server's
	// timeout, and its status would change.
	w.callDirectly(t, "keelson", webhook)
	taken := time.Now().Unix()
	transcript.Eventually(t, "it has started runs", func() bool {
		runs := objects.Runs(t)
		return len(runs) > 0 && runs[len(runs)-1] > taken+2
	})
	objects.AwaitSettled(t)

	if diff := cmp.Diff(was, objects.Snapshot(t)); diff != "" {
		t.Errorf("the upgrade has changed something (-before +after):\n%s", diff)
	}
	if seen := flaps(); len(seen) > 0 {
		t.Errorf("not ready in between:\n%s", strings.Join(seen, "\n"))
	}
	objects.CheckRuns(t, 5)
	if diff := cmp.Diff(bundle, w.bundle(t)); diff != "" || bundle == "" {
		t.Errorf("caBundle of the webhook (-before +after):\n%s", diff)
	}
	w.kubectl(t, "patch", "crontab", "often", "--namespace", "live", "--type=merge", "-p", `{"spec":{"`+newField+`":"1s"}}`)
	if got := w.kubectl(t, "get", "crontab", "often", "--namespace", "live", "-o", "jsonpath={.spec."+newField+"}"); got != "1s" {
		t.Errorf("the new field is %q, want 1: the CRD is the previous one", got)
	}
	for _, refused := range w.recordOf(t, "system:serviceaccount:"+home+":"+account).refused {
		t.Errorf("missing permission: %s", refused)
	}
	w.kubectl(t, "delete", "foos,sampleresources,crontabs", "--all", "--namespace", "live", "--timeout", transcript.WaitTimeout.String())
	next.Signal(t, syscall.SIGTERM)
	next.AwaitDone(t)
}

// takeBack replaces a CRD by one without the new field, as Helm would have installed it.
func (w *world) takeBack(t *testing.T, name string) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	quiet := transcript.Quietly(t) // it is long
	if err := definition.UnmarshalJSON([]byte(w.OK(quiet, "kubectl", "get", "crd", name, "-o", "json", "--show-managed-fields"))); err != nil {
		t.Fatal(err)
	}
	manager := ""
	for _, fields := range definition.GetManagedFields() {
		if fields.Operation == metav1.ManagedFieldsOperationApply {
			manager = fields.Manager
		}
	}
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	properties := versions[0].(map[string]any)
	for _, key := range []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"} {
		properties = properties[key].(map[string]any)
	}
	if properties[newField] == nil {
		t.Fatalf("the CRD %s has no field %s", name, newField)
	}
	delete(properties, newField)
	before := &unstructured.Unstructured{Object: map[string]any{"apiVersion": definition.GetAPIVersion(), "kind": definition.GetKind(), "spec": definition.Object["spec"]}}
	before.SetName(name)
	before.SetLabels(definition.GetLabels())
	before.SetAnnotations(definition.GetAnnotations())
	if err := unstructured.SetNestedSlice(before.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	raw, err := before.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(raw), "--field-manager", manager)
}

// startInstalled runs a manager with the arguments of the Deployment outside of the cluster, with
// its webhook at an address and additional flags.
func (w *world) startInstalled(t *testing.T, name, kubeconfig, webhook string, flags ...string) *managers.Manager {
	t.Helper()
	args := w.args(t, webhook)
	if args[0] != "manager" {
		t.Fatalf("the Deployment runs %q", args)
	}
	// A Pod gets these values from its environment.
	return managers.Start(t, name, slices.Concat(args[1:], []string{
		"--kubeconfig", kubeconfig, "--state-dir", filepath.Join(w.dir, name), "--lease-lock-namespace", home, "--secret-namespace", home,
		"--webhook-service-namespace", home,
	}, flags)...)
}

// bundle returns caBundle of the webhook.
func (w *world) bundle(t *testing.T) string {
	t.Helper()
	return w.OK(transcript.Quietly(t), "kubectl", "get", "validatingwebhookconfiguration", "keelson", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
}
