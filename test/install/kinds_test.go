package install

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// allSwitchedOn is an installation with all kinds.
const allSwitchedOn = "resources: [../keelson/config/default]\n" +
	"components: [../keelson/config/kinds/cluster, ../keelson/config/kinds/virtualmachine]\n"

// byDefault is everything that the default installation grants to its manager: the verbs, by scope
// and resource. It must contain no rule for a kind that is off by default, and none for Secrets in
// all namespaces.
var byDefault = map[string]string{
	"everywhere: crontabs.stable.example.com":                                                "get list watch",
	"everywhere: crontabs/finalizers.stable.example.com":                                     "update",
	"everywhere: crontabs/status.stable.example.com":                                         "update",
	"everywhere: deployments.apps":                                                           "create delete get list patch watch",
	"everywhere: events.events.k8s.io":                                                       "create patch",
	"everywhere: foos.samplecontroller.k8s.io":                                               "get list watch",
	"everywhere: foos/finalizers.samplecontroller.k8s.io":                                    "update",
	"everywhere: foos/status.samplecontroller.k8s.io":                                        "update",
	"everywhere: jobs.batch":                                                                 "create delete get list patch watch",
	"everywhere: kubeconfigs.clusterprovisioner.rke.io":                                      "get list patch watch",
	"everywhere: kubeconfigs/status.clusterprovisioner.rke.io":                               "update",
	"everywhere: pods":                                                                       "create delete get list patch watch",
	"everywhere: sampleresources.example.com":                                                "get list watch",
	"everywhere: sampleresources/finalizers.example.com":                                     "update",
	"everywhere: sampleresources/status.example.com":                                         "update",
	"everywhere: subjectaccessreviews.authorization.k8s.io":                                  "create",
	"everywhere: tokenreviews.authentication.k8s.io":                                         "create",
	"everywhere: validatingwebhookconfigurations.admissionregistration.k8s.io named keelson": "get update",
	"in keelson-system: leases.coordination.k8s.io":                                          "create",
	"in keelson-system: leases.coordination.k8s.io named keelson":                            "get update",
	"in keelson-system: secrets":                                                             "create get",
	"in keelson-system: secrets named keelson-webhook-ca":                                    "get update",
}

// forVirtualMachines and forClusters are the additional grants of these kinds, and forDriverPod those of a driver.
var (
	forVirtualMachines = map[string]string{
		"everywhere: apiservices.apiregistration.k8s.io named v1alpha1.access.cloudnative.tw": "get update",
		"everywhere: configmaps named extension-apiserver-authentication":                     "get",
		"in keelson-system: endpointslices.discovery.k8s.io":                                  "create",
		"in keelson-system: endpointslices.discovery.k8s.io named keelson-access":             "get update",
		"in keelson-system: secrets named keelson-access-ca":                                  "get update",
		"in keelson-system: services named keelson-access":                                    "get",
		"everywhere: endpointslices.discovery.k8s.io":                                         "create delete get list patch watch",
		"everywhere: namespaces named kube-system":                                            "get",
		"everywhere: secrets":                                       "get",
		"everywhere: services":                                      "create delete get list patch watch",
		"everywhere: virtualdisks.cloudnative.tw":                   "create get list patch watch",
		"everywhere: virtualdisks/status.cloudnative.tw":            "update",
		"everywhere: virtualmachineimages.cloudnative.tw":           "get list patch watch",
		"everywhere: virtualmachineimages/status.cloudnative.tw":    "update",
		"everywhere: virtualmachinesets.cloudnative.tw":             "get list watch",
		"everywhere: virtualmachinesets/finalizers.cloudnative.tw":  "update",
		"everywhere: virtualmachinesets/status.cloudnative.tw":      "update",
		"everywhere: virtualmachinesnapshots.cloudnative.tw":        "create delete get list patch watch",
		"everywhere: virtualmachinesnapshots/status.cloudnative.tw": "update",
		"everywhere: virtualmachines.cloudnative.tw":                "create delete get list patch watch",
		"everywhere: virtualmachines/finalizers.cloudnative.tw":     "update",
		"everywhere: virtualmachines/status.cloudnative.tw":         "update",
	}
	// forDriverPod replaces some of forVirtualMachines and byDefault.
	forDriverPod = map[string]string{
		"everywhere: persistentvolumeclaims":      "create delete list patch watch",
		"everywhere: poddisruptionbudgets.policy": "create delete",
		"everywhere: pods.metrics.k8s.io":         "list",
		"everywhere: pods/log":                    "get",
		"everywhere: pods/portforward":            "create get",
		"everywhere: secrets":                     "create delete get update",
		"in keelson-system: secrets":              "create delete get list update watch",
	}
	forClusters = map[string]string{
		"everywhere: clusters.clusterprovisioner.rke.io":                "delete get list patch watch",
		"everywhere: clusters/finalizers.clusterprovisioner.rke.io":     "update",
		"everywhere: clusters/status.clusterprovisioner.rke.io":         "update",
		"everywhere: clustersnapshots.clusterprovisioner.rke.io":        "create delete get list patch watch",
		"everywhere: clustersnapshots/status.clusterprovisioner.rke.io": "update",
		"everywhere: kubeconfigs.clusterprovisioner.rke.io":             "create delete get list patch update watch",
		"everywhere: namespaces named kube-system":                      "get",
		"in keelson-system: secrets":                                    "create delete get list update watch",
	}
)

// An installation runs, validates and grants exactly the enabled kinds, and rejects new objects of
// disabled ones.
func TestLongKindsOfAnInstallation(t *testing.T) {
	t.Parallel()
	const withBase = "resources: [../keelson/config/default]\ncomponents: [../keelson/config/kinds/"
	for _, tt := range []struct {
		name, kustomization, values    string
		onlyKustomize                  bool
		controllers, webhooks, refused string
		granted                        []map[string]string
	}{
		{
			name: "by default", kustomization: "resources: [../keelson/config/default]",
			controllers: "crontab foo kubeconfig sampleresource", webhooks: "crontabs kubeconfigs", refused: "clusters virtualmachines",
			granted: []map[string]string{byDefault},
		},
		{
			name: "VirtualMachines", kustomization: withBase + "virtualmachine]", values: "controllers: {virtualmachine: true}\ndriverPod: {enabled: false}",
			controllers: "crontab foo kubeconfig sampleresource virtualmachine", webhooks: "crontabs kubeconfigs virtualmachines", refused: "clusters",
			granted: []map[string]string{byDefault, forVirtualMachines},
		},
		{
			name: "VirtualMachines in Pods", kustomization: documented(t, podsPage, "pods/kustomization.yaml"), values: documented(t, podsPage, "pods.yaml"),
			controllers: "crontab foo kubeconfig sampleresource virtualmachine", webhooks: "crontabs kubeconfigs virtualmachines", refused: "clusters",
			granted: []map[string]string{byDefault, forVirtualMachines, forDriverPod},
		},
		{
			name: "Clusters", kustomization: withBase + "cluster]", values: "controllers: {cluster: true}",
			controllers: "cluster crontab foo kubeconfig sampleresource", webhooks: "clusters crontabs kubeconfigs", refused: "virtualmachines",
			granted: []map[string]string{byDefault, forClusters},
		},
		{
			name: "all", kustomization: allSwitchedOn, values: valueSets["all kinds"],
			controllers: "cluster crontab foo kubeconfig sampleresource virtualmachine", webhooks: "clusters crontabs kubeconfigs virtualmachines",
			granted: []map[string]string{byDefault, forVirtualMachines, forClusters},
		},
		{
			name: "some kinds on a host", kustomization: withBase + "on-host]", onlyKustomize: true,
			controllers: "crontab foo sampleresource", webhooks: "crontabs kubeconfigs",
			granted: []map[string]string{byDefault},
		},
		{
			name: "some kinds on a host by Helm", values: documented(t, hostPage, "host.yaml"),
			controllers: "crontab foo sampleresource", webhooks: "crontabs",
			granted: []map[string]string{without(byDefault, "kubeconfigs"), {"in keelson-system: secrets": "create"}},
		},
		{
			name: "in some namespaces nothing is rejected", values: "{namespaces: [a], controllers: {kubeconfig: false, foo: false, sampleresource: false}}",
			controllers: "crontab", webhooks: "crontabs",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(tool string, objects []*unstructured.Unstructured) {
				t.Helper()
				named := byName(objects)
				want := map[string]string{"controllers": tt.controllers, "webhooks": tt.webhooks, "refused": tt.refused}
				got := map[string]string{"controllers": runs(t, named["Deployment "+account]), "webhooks": askedAbout(t, named), "refused": refused(t, named)}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tool, diff)
				}
				if tt.granted == nil {
					return
				}
				granted := map[string]string{}
				for _, more := range tt.granted {
					maps.Copy(granted, more)
				}
				if diff := cmp.Diff(granted, permissionsIn(t, named)); diff != "" {
					t.Errorf("%s: grants of the manager (-want +got):\n%s", tool, diff)
				}
			}
			if tt.kustomization != "" {
				shell := world{Shell: transcript.Shell{Env: map[string]string{"HOME": t.TempDir()}}}
				check("kustomize", parse(t, shell.kustomize(t, overlayIn(t, tt.kustomization))))
			}
			if !tt.onlyKustomize {
				_, objects := rendered(t, "keelson", home, tt.values)
				check("Helm", objects)
			}
		})
	}
}

// The examples of docs/install-docker.md give the Pod a directory for its state, the
// certificate, and network access to the engine. The example with a claim replaces the volume.
func TestLongMachinesOfADockerEngine(t *testing.T) {
	t.Parallel()
	shell := world{Shell: transcript.Shell{Env: map[string]string{"HOME": t.TempDir()}}}
	overlay := documented(t, dockerPage, "docker/kustomization.yaml")
	_, chart := rendered(t, "keelson", home, documented(t, dockerPage, "docker.yaml"), withoutDefinitions...)
	claim := regexp.MustCompile("(?s)```yaml\n(- patch: .*?)```").FindStringSubmatch(readPage(t, dockerPage))
	if claim == nil {
		t.Fatal("docs/install-docker.md shows no patch with a claim")
	}
	const inPod, inMemory = ".spec.template.spec", `tmp {"sizeLimit":"64Mi"}  state {}  docker  docker-client `
	for name, tt := range map[string]struct {
		objects []*unstructured.Unstructured
		volumes string
	}{
		"kustomize":        {parse(t, shell.kustomize(t, overlayIn(t, overlay))), inMemory},
		"kustomize, claim": {parse(t, shell.kustomize(t, overlayIn(t, overlay+claim[1]))), `state  keelson-state tmp {"sizeLimit":"64Mi"}  docker  docker-client `},
		"Helm":             {chart, inMemory},
	} {
		named := byName(tt.objects)
		deployment := named["Deployment "+account]
		var volumes strings.Builder
		for _, volume := range strings.Fields(field(t, deployment, "{"+inPod+".volumes[*].name}")) {
			at := inPod + `.volumes[?(@.name=="` + volume + `")]`
			fmt.Fprintf(&volumes, "%s %s %s%s ", volume, field(t, deployment, "{"+at+".emptyDir}"),
				field(t, deployment, "{"+at+".persistentVolumeClaim.claimName}"), field(t, deployment, "{"+at+".secret.secretName}"))
		}
		args := strings.Fields(field(t, deployment, "{range "+inPod+".containers[0].args[*]}{@} {end}"))
		want := map[string]any{
			"volumes": tt.volumes, "mounted": "/tmp /var/lib/keelson /var/run/keelson/docker",
			"variables": "1/var/run/keelson/docker", "egress": `{"ports":[{"port":2376,"protocol":"TCP"}],"to":[{"ipBlock":{"cidr":"192.0.2.10/32"}}]}`,
			"state": true, "engine": true,
		}
		got := map[string]any{
			"volumes":   volumes.String(),
			"mounted":   field(t, deployment, "{"+inPod+".containers[0].volumeMounts[*].mountPath}"),
			"variables": field(t, deployment, "{"+inPod+`.containers[0].env[?(@.name=="DOCKER_TLS_VERIFY")].value}{`+inPod+`.containers[0].env[?(@.name=="DOCKER_CERT_PATH")].value}`),
			"egress":    field(t, named["NetworkPolicy keelson-manager"], "{.spec.egress[2]}"),
			"state":     slices.Contains(args, "--state-dir=/var/lib/keelson"),
			"engine":    slices.Contains(args, "--vm-docker-host=tcp://docker.example:2376"),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// without returns the permissions except those for a resource.
func without(permissions map[string]string, resource string) map[string]string {
	rest := maps.Clone(permissions)
	maps.DeleteFunc(rest, func(target, _ string) bool { return strings.HasPrefix(target, "everywhere: "+resource) })
	return rest
}

// runs returns the controllers of a Deployment, sorted.
func runs(t *testing.T, deployment *unstructured.Unstructured) string {
	t.Helper()
	var names []string
	for arg := range strings.FieldsSeq(field(t, deployment, `{range .spec.template.spec.containers[0].args[*]}{@} {end}`)) {
		if selected, ok := strings.CutPrefix(arg, "--controllers="); ok {
			names = append(names, strings.Split(selected, ",")...)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// askedAbout returns the resources that the manager's webhook validates, sorted.
func askedAbout(t *testing.T, named map[string]*unstructured.Unstructured) string {
	t.Helper()
	resources := strings.Fields(field(t, named["ValidatingWebhookConfiguration keelson"], `{range .webhooks[*]}{.rules[0].resources[0]} {end}`))
	slices.Sort(resources)
	return strings.Join(resources, " ")
}

// refused returns the resources whose new objects are rejected, sorted.
func refused(t *testing.T, named map[string]*unstructured.Unstructured) string {
	t.Helper()
	var resources []string
	for name, policy := range named {
		if !strings.HasPrefix(name, "ValidatingAdmissionPolicy ") || field(t, policy, "{.spec.validations[0].expression}") != "false" {
			continue
		}
		binding := named["ValidatingAdmissionPolicyBinding "+policy.GetName()]
		if got := field(t, policy, "{.spec.matchConstraints.resourceRules[0].operations}") + field(t, binding, "{.spec.validationActions}"); got != `["CREATE"]["Deny"]` {
			t.Errorf("%s does %s", name, got)
		}
		resources = append(resources, field(t, policy, "{.spec.matchConstraints.resourceRules[0].resources[0]}"))
	}
	slices.Sort(resources)
	return strings.Join(resources, " ")
}

// permissionsIn returns the grants of the manager's service account in manifests, in the form of
// byDefault.
func permissionsIn(t *testing.T, named map[string]*unstructured.Unstructured) map[string]string {
	t.Helper()
	verbs := map[string][]string{}
	for _, o := range named {
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			t.Fatal(err)
		}
		role := named[binding.RoleRef.Kind+" "+binding.RoleRef.Name]
		if !names(binding.Subjects, "system:serviceaccount:"+home+":"+account) || role == nil {
			t.Fatalf("%s %s binds %s to %v", o.GetKind(), o.GetName(), binding.RoleRef.Name, binding.Subjects)
		}
		where := "everywhere"
		if binding.Namespace != "" {
			where = "in " + binding.Namespace
		}
		for _, g := range grantsIn(role) {
			target := where + ": " + strings.TrimSuffix(g.resource+"."+g.group, ".")
			if g.name != "" {
				target += " named " + g.name
			}
			verbs[target] = append(verbs[target], g.verb)
		}
	}
	all := map[string]string{}
	for target, of := range verbs {
		slices.Sort(of)
		all[target] = strings.Join(slices.Compact(of), " ")
	}
	return all
}

// The manager of the default installation starts with its permissions and works only on enabled
// kinds. Creating an object of a disabled kind fails with an explanation; existing objects can be
// deleted. A component enables a kind with its permissions, and removing it disables both.
func TestLongEnabledKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	env.Define(t, w.admin)
	virtualMachine := func(name string) []string {
		return []string{"kubectl", "create", "-f", valuesIn(t, fmt.Sprintf("{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: %s}, spec: {driver: fake}}", name))}
	}
	w.OK(t, virtualMachine("before")...)
	w.apply(t, w.kustomize(t, base))
	g := w.newGate(t)
	const user = "system:serviceaccount:" + home + ":" + account
	kubeconfig := w.kubeconfigOf(t, g, home, account)
	mayReadSecrets := func() bool {
		return w.Run(transcript.Quietly(t), "kubectl", "auth", "can-i", "get", "secrets", "--quiet", "--namespace", "default", "--as", user).Code == 0
	}
	stop := func(manager *managers.Manager) {
		t.Helper()
		manager.Signal(t, syscall.SIGTERM)
		manager.AwaitDone(t)
	}

	manager := w.startInstalled(t, "default", kubeconfig, harness.FreeAddress(t).String())
	manager.AwaitReady(t)
	w.refuses(t, "VirtualMachine", virtualMachine("web")...)
	w.refuses(t, "Cluster", "kubectl", "create", "-f", "../../examples/manifests/cluster.yaml")
	w.kubectl(t, "create", "-f", "../../examples/manifests/foo.yaml")
	w.kubectl(t, "wait", "--for=condition=Ready", "foo/example-foo", "--timeout", transcript.WaitTimeout.String())
	w.kubectl(t, "create", "secret", "generic", "mine", "--namespace", home, "--from-file=value="+w.Env["KUBECONFIG"])
	w.apply(t, "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Kubeconfig, metadata: {name: mine}, spec: {secretRef: {namespace: "+home+", name: mine}}}")
	w.kubectl(t, "wait", "--for=condition=Ready", "kubeconfig/mine", "--timeout", transcript.WaitTimeout.String())
	w.pingsWithSecret(t)
	w.kubectl(t, "label", "virtualmachine", "before", "still=mine")
	w.kubectl(t, "delete", "virtualmachine", "before", "--timeout", transcript.WaitTimeout.String())
	if mayReadSecrets() {
		t.Error("by default the manager may read Secrets everywhere")
	}
	stop(manager)
	r := w.recordOf(t, user)
	for u := range r.uses {
		if slices.Contains([]string{"virtualmachines", "clusters"}, u.resource) {
			t.Errorf("the manager works on a disabled kind: %s", u)
		}
	}

	w.apply(t, w.kustomize(t, overlayIn(t, "resources: [../keelson/config/default]\ncomponents: [../keelson/config/kinds/virtualmachine]")), "--force-conflicts")
	transcript.Eventually(t, "a VirtualMachine is accepted", func() bool { return w.Run(transcript.Quietly(t), virtualMachine("web")...).Code == 0 })
	manager = w.startInstalled(t, "with VirtualMachines", kubeconfig, harness.FreeAddress(t).String(), "--vm-driver=fake")
	manager.AwaitReady(t)
	w.kubectl(t, "wait", "--for=condition=Ready", "virtualmachine/web", "--timeout", transcript.WaitTimeout.String())
	w.refuses(t, "Cluster", "kubectl", "create", "-f", "../../examples/manifests/cluster.yaml")
	w.kubectl(t, "delete", "virtualmachine", "web", "--timeout", transcript.WaitTimeout.String())
	stop(manager)
	if !mayReadSecrets() {
		t.Error("with VirtualMachines the manager may not read their Secrets")
	}

	w.apply(t, w.kustomize(t, base), "--force-conflicts")
	w.refuses(t, "VirtualMachine", virtualMachine("web")...)
	transcript.Eventually(t, "the manager may not read Secrets any more", func() bool { return !mayReadSecrets() })
	for _, refused := range w.recordOf(t, user).refused {
		t.Errorf("missing permission: %s", refused)
	}
}

// pingsWithSecret runs the commands of docs/crontab-ping.md, which let the manager read the Secret of a check, and waits until the
// manager has read it: it refuses to send a request to the address there.
func (w *world) pingsWithSecret(t *testing.T) {
	t.Helper()
	commands := strings.Join(transcript.Commands(t, "../../docs/crontab-ping.md"), "")
	w.Script(t, t.TempDir(), regexp.MustCompile(`--from-literal=url=\S+`).ReplaceAllString(commands, "--from-literal=url=http://127.0.0.1:1"))
	w.apply(t, "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: checked}, spec: {schedule: '0 0 1 1 *', jobTemplate: {containers: [{name: run, image: busybox}]}, ping: {secretRef: {name: backup-check}}}}")
	w.OK(t, "keelson", "crontab", "trigger", "checked", "--wait=false")
	transcript.Eventually(t, "the manager has read the Secret", func() bool {
		events := w.Run(transcript.Quietly(t), "kubectl", "events", "--for", "crontab/checked", "--types", "Warning")
		return strings.Contains(events.Stdout, "the address is not allowed")
	})
	w.kubectl(t, "delete", "crontab", "checked")
}

// refuses waits until a command that creates an object of a disabled kind fails: a policy takes
// effect after a moment.
func (w *world) refuses(t *testing.T, kind string, words ...string) {
	t.Helper()
	transcript.Eventually(t, "a "+kind+" is refused", func() bool {
		result := w.Run(transcript.Quietly(t), append(words, "--dry-run=server")...)
		return result.Code == 1 && strings.Contains(result.Stderr, "the kind "+kind+" is off in this installation of Keelson") &&
			strings.Contains(result.Stderr, "docs/install.md")
	})
}
