//go:build linux && versions

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/rehearsal"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// versions returns the version of bin/keelson-kube, and an installed one of the minor version before.
func versions(t *testing.T) (older, newer string) {
	t.Helper()
	main, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := local.Installed(t.Context(), main)
	if err != nil {
		t.Fatal(err)
	}
	for _, components := range installed {
		if components.Default {
			newer = components.Version
		}
	}
	for _, components := range installed {
		if components.Problem == "" && version.MustParse(components.Version).Minor()+1 == version.MustParse(newer).Minor() {
			older = components.Version
		}
	}
	if older == "" {
		t.Fatalf("there is no version of the minor version before %s beside %s: run make test-versions", newer, main)
	}
	return older, newer
}

// newTenant returns a user with a Cluster "demo" of a version, which it waits for.
func newTenant(t *testing.T, version string, flags ...string) *tenant {
	t.Helper()
	c := &tenant{user: newAccount(t)}
	c.kubeconfig = filepath.Join(c.home, "demo.kubeconfig")
	c.start(t)
	c.cluster(t, append([]string{"create", "demo", "--version", version, "--wait", "--timeout", transcript.WaitTimeout.String()}, flags...)...)
	if err := os.WriteFile(c.kubeconfig, []byte(c.cluster(t, "kubeconfig", "demo")), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// applyIn applies a manifest in the Cluster.
func (c *tenant) applyIn(t *testing.T, manifest string) {
	t.Helper()
	shell := c.Shell
	shell.Stdin = manifest
	shell.OK(t, "kubectl", "--kubeconfig", c.kubeconfig, "apply", "-f", "-")
}

// kubelets returns the versions of the kubelets in the Cluster.
func (c *tenant) kubelets(t *testing.T) string {
	t.Helper()
	return c.in(t, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
}

const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestVersionsUpgrade upgrades a Cluster with objects, real nodes and Pods to the next minor version.
func TestVersionsUpgrade(t *testing.T) {
	env.RealNode(t)
	older, newer := versions(t)
	number := 2
	if rootless {
		number = 1
	}
	c := newTenant(t, older, "--nodes", fmt.Sprint(number))
	folder := t.TempDir()
	buildApp(t, folder, "v1")
	c.OK(t, "keelson", "node", "image", "load", "--cluster", "demo", "--data-dir", c.data, "--name", "app:v1", folder)
	c.in(t, "create", "configmap", "kept", "--from-literal=a=b")
	c.applyIn(t, widgets)
	c.in(t, "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout", transcript.WaitTimeout.String())
	c.applyIn(t, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: kept}, spec: {size: 3}}")
	c.in(t, "create", "deployment", "web", "--image=app:v1", "--replicas=2")
	c.in(t, "rollout", "status", "deployment/web", "--timeout", transcript.WaitTimeout.String())
	c.in(t, "run", "alone", "--image=app:v1")
	c.in(t, "wait", "--for=condition=Ready", "pod/alone", "--timeout", transcript.WaitTimeout.String())
	pod := c.in(t, "get", "pod", "alone", "-o", "jsonpath={.metadata.uid}")
	all := func(version string) string { return strings.TrimSpace(strings.Repeat(version+" ", number)) }
	if got := c.kubelets(t); got != all(older) {
		t.Errorf("kubelets before the upgrade: %s", got)
	}
	uses := func(version string) {
		t.Helper()
		var list struct {
			Versions []struct {
				Version  string
				Clusters []string
			}
		}
		if err := json.Unmarshal([]byte(c.OK(t, "keelson", "cluster", "versions", "-o", "json", "--data-dir", c.data)), &list); err != nil {
			t.Fatal(err)
		}
		for _, v := range list.Versions {
			if uses := len(v.Clusters) == 1; uses != (v.Version == version) {
				t.Errorf("keelson cluster versions: %s is used by %q", v.Version, v.Clusters)
			}
		}
	}
	uses(older)

	began := time.Now()
	c.patchSpec(t, `{"version":"`+newer+`"}`)
	if number > 1 {
		c.Until(t, "the first node is upgraded, and the second is not", transcript.Is(newer+" "+older), "kubectl", "--kubeconfig", c.kubeconfig,
			"get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
		c.killManager(t) // the next one upgrades the rest
		c.start(t)
	}
	c.awaitCondition(t, "Provisioned")
	c.awaitCondition(t, "NodesReady")
	t.Logf("the nodes are upgraded after %v", time.Since(began).Round(time.Millisecond))
	c.awaitCondition(t, "Ready")
	if got := c.field(t, "cluster/demo", "{.status.version}"); got != newer {
		t.Errorf("status.version is %s", got)
	}
	if got := c.kubelets(t); got != all(newer) {
		t.Errorf("kubelets after the upgrade: %s", got)
	}
	uses(newer)
	transcript.Contains(t, c.in(t, "version"), "Server Version: "+newer)
	transcript.Contains(t, c.kubectl(t, "get", "events", "--field-selector=reason=Upgraded"), "demo")

	c.in(t, "wait", "--for=condition=Ready", "pod/alone", "--timeout", transcript.WaitTimeout.String())
	if got := c.in(t, "get", "pod", "alone", "-o", "jsonpath={.metadata.uid}"); got != pod {
		t.Errorf("the Pod was replaced: its UID is %s, was %s", got, pod)
	}
	c.in(t, "rollout", "status", "deployment/web", "--timeout", transcript.WaitTimeout.String())
	transcript.Contains(t, c.in(t, "exec", "alone", "--", "/app", "say", "here"), "here")
	if got := c.in(t, "get", "configmap/kept", "widget/kept", "-o", "jsonpath={.items[*].data.a} {.items[*].spec.size}"); got != "b 3" {
		t.Errorf("the objects are %q", got)
	}
	c.in(t, "scale", "deployment/web", "--replicas=3")
	c.in(t, "rollout", "status", "deployment/web", "--timeout", transcript.WaitTimeout.String())

	c.patchSpec(t, `{"version":"`+older+`"}`)
	c.awaitCondition(t, "Provisioned=False")
	transcript.Contains(t, c.field(t, "cluster/demo", `{.status.conditions[?(@.type=="Provisioned")]}`),
		"VersionNotAvailable", "the cluster has "+newer+", whose data "+older+" cannot read")
	c.awaitCondition(t, "Ready")
	c.in(t, "get", "configmap", "kept")
	c.patchSpec(t, `{"version":"`+newer+`"}`)
	c.awaitCondition(t, "Provisioned")
	c.cluster(t, "delete", "demo", "--wait")
}

// TestVersionsRehearse rehearses an upgrade of a Cluster with objects that it loses or warns of.
func TestVersionsRehearse(t *testing.T) {
	older, newer := versions(t)
	c := newTenant(t, older)
	if older != "v1.35.4" {
		t.Fatalf("choose an API that %s has, and %s has not", older, newer)
	}
	// scheduling.k8s.io/v1alpha1 is replaced by v1alpha2 in v1.36, and kube-apiserver does not start with an API that it does not have.
	c.patchSpec(t, `{"apiServer":{"extraArgs":{"runtime-config":"scheduling.k8s.io/v1alpha1=true","feature-gates":"GenericWorkload=true"}}}`)
	c.awaitCondition(t, "Provisioned")
	c.awaitCondition(t, "Ready")
	c.applyIn(t, widgets)
	c.in(t, "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout", transcript.WaitTimeout.String())
	c.applyIn(t, `apiVersion: example.com/v1
kind: Widget
metadata: {name: kept}
---
apiVersion: scheduling.k8s.io/v1alpha1
kind: Workload
metadata: {name: lost}
spec: {podGroups: [{name: all, policy: {gang: {minCount: 2}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: exposed}
spec: {externalIPs: [192.0.2.9], ports: [{port: 80}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: widgets.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: default, name: nobody}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [widgets], operations: [UPDATE]}]
`)
	rehearse := func(code int, args ...string) (report struct {
		From, To string
		Objects  int
		Findings []rehearsal.Finding
	}) {
		t.Helper()
		result := c.Run(t, append([]string{"keelson", "cluster", "rehearse", "demo", "--data-dir", c.data, "-o", "json"}, args...)...)
		if result.Code != code {
			t.Fatalf("the exit code is %d, want %d", result.Code, code)
		}
		if err := json.Unmarshal([]byte(result.Stdout), &report); err != nil {
			t.Fatal(err)
		}
		return report
	}
	began := time.Now()
	report := rehearse(1, "--version", newer)
	t.Logf("rehearsed after %v", time.Since(began).Round(time.Millisecond))
	if report.From != older || report.To != newer || report.Objects < 100 {
		t.Errorf("from %s to %s with %d objects", report.From, report.To, report.Objects)
	}
	c.has(t, report.Findings, rehearsal.Refused, "Cluster", "group version scheduling.k8s.io/v1alpha1 that has not been registered")
	c.has(t, report.Findings, rehearsal.Refused, "Workload scheduling.k8s.io/v1alpha1", "does not serve this resource")
	c.has(t, report.Findings, rehearsal.Warning, "Service v1", "spec.externalIPs is deprecated")
	c.has(t, report.Findings, rehearsal.Unchecked, "ValidatingWebhookConfiguration", "widgets.example.com may be called for 1 object,")
	if len(report.Findings) != 4 {
		t.Errorf("%d findings", len(report.Findings))
	}
	c.leavesNothing(t)
	c.in(t, "get", "workload/lost", "widget/kept", "validatingwebhookconfiguration/policy")

	for _, f := range rehearse(0, "--version", older, "--via-proxy").Findings {
		if f.Result == rehearsal.Refused {
			t.Errorf("with the same version: %v", f)
		}
	}
	c.leavesNothing(t)

	// Interrupted, while the fork exists.
	running := c.Start(t, "keelson", "cluster", "rehearse", "demo", "--data-dir", c.data, "--version", newer)
	running.Await(t, "Provisioning")
	running.Signal(t, syscall.SIGINT)
	if result := running.Wait(t); result.Code != 1 || !strings.Contains(running.Text(), "the rehearsal was interrupted") {
		t.Errorf("interrupted, it ended with %d", result.Code)
	}
	c.leavesNothing(t)
	c.cluster(t, "delete", "demo", "--wait")
}

func (c *tenant) has(t *testing.T, findings []rehearsal.Finding, result rehearsal.Result, kind, what string) {
	t.Helper()
	for _, f := range findings {
		if f.Result == result && f.Kind == kind && strings.Contains(f.What, what) && f.Count == 1 {
			return
		}
	}
	t.Errorf("no finding %s %s with one object says %q: %v", result, kind, what, findings)
}

// leavesNothing checks that only the Cluster is there.
func (c *tenant) leavesNothing(t *testing.T) {
	t.Helper()
	if left := strings.Fields(c.kubectl(t, "get", "clusters,clustersnapshots", "-o", "name")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
