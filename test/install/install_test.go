package install

import (
	gocmp "cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// The commands of a user to install, observe and uninstall.
func TestLongKustomize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newCheckout(t, "KUBECONFIG="+w.Env["KUBECONFIG"])
	for _, step := range []struct {
		name string
		run  func(*testing.T, *world, checkout)
	}{
		{"a dry run accepts it", dryRun},
		{"it is installed, and runs within the restricted profile", installed},
		{"the profile is enforced", enforced},
		{"installed again, nothing changes", installedAgain},
		{"view, edit and admin include Keelson's kinds", aggregated},
		{"in another namespace, with another image", elsewhere},
		{"with machines of a Docker engine", onAnEngine},
		{"uninstalled, nothing is left", uninstalled},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, w, c) }) {
			return // later steps depend on this one
		}
	}
}

const base = "../../config/default"

func dryRun(t *testing.T, w *world, _ checkout) {
	// A dry run of namespaced objects needs the namespace.
	w.namespace(t, home)
	out := w.apply(t, w.kustomize(t, base), "--dry-run=server", "--validate=strict")
	transcript.Contains(t, out, "deployment.apps/keelson-manager serverside-applied (server dry run)")
	w.kubectl(t, "delete", "namespace", home)
}

func installed(t *testing.T, w *world, c checkout) {
	// Its Pods are admitted, and the simulated nodes report them as running.
	transcript.Contains(t, c.types(t, installPage, kubectlSection, 0), "deployment.apps/keelson-manager serverside-applied", "successfully rolled out")
	if got := w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home, "-o", "jsonpath={.spec.template.spec.containers[*].image}"); got != image {
		t.Errorf("the image is %s, want %s", got, image)
	}
	pods := w.kubectl(t, "get", "pods", "--namespace", home, "-o", "jsonpath={range .items[*]}{.spec.priority} {end}")
	if diff := cmp.Diff("1000000 1000000 ", pods); diff != "" {
		t.Errorf("priorities of two replicas (-want +got):\n%s", diff)
	}
	w.Until(t, "one may be disrupted", transcript.Is("1"), "kubectl", "get", "poddisruptionbudget", "keelson-manager",
		"--namespace", home, "-o", "jsonpath={.status.disruptionsAllowed}")
	if got := w.kubectl(t, "get", "poddisruptionbudget", "keelson-manager", "--namespace", home,
		"-o", "jsonpath={.spec.maxUnavailable} {.spec.unhealthyPodEvictionPolicy}"); got != "1 AlwaysAllow" {
		t.Errorf("the PodDisruptionBudget is %s", got)
	}
	var deployment appsv1.Deployment
	if err := json.Unmarshal([]byte(w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home, "-o", "json")), &deployment); err != nil {
		t.Fatal(err)
	}
	confined(t, deployment.Spec.Template.Spec)
	spread(t, deployment.Spec.Template)
}

// confined checks the permissions of a Pod on its node: the restricted profile, which does not
// cover the root file system.
func confined(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, pod.SecurityContext); diff != "" {
		t.Errorf("security of the Pod (-want +got):\n%s", diff)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the Pod uses a namespace of the host")
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		if diff := cmp.Diff(&corev1.SecurityContext{
			ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, container.SecurityContext); diff != "" {
			t.Errorf("security of the container %s (-want +got):\n%s", container.Name, diff)
		}
	}
}

// spread checks that the Pods of a version are spread, and have a priority.
func spread(t *testing.T, template corev1.PodTemplateSpec) {
	t.Helper()
	if got := template.Spec.PriorityClassName; got != "keelson-manager" {
		t.Errorf("the priority class is %q", got)
	}
	var over []string
	for _, constraint := range template.Spec.TopologySpreadConstraints {
		over = append(over, constraint.TopologyKey)
		selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("over %s: %s does not select the Pods, which have the labels %v: %v", constraint.TopologyKey, selector, template.Labels, err)
		}
		if constraint.MaxSkew != 1 || !slices.Equal(constraint.MatchLabelKeys, []string{"pod-template-hash"}) {
			t.Errorf("over %s: a skew of %d among Pods with the same %v", constraint.TopologyKey, constraint.MaxSkew, constraint.MatchLabelKeys)
		}
	}
	if diff := cmp.Diff([]string{corev1.LabelHostname, corev1.LabelTopologyZone}, over); diff != "" {
		t.Errorf("spread over (-want +got):\n%s", diff)
	}
}

func enforced(t *testing.T, w *world, _ checkout) {
	transcript.Contains(t, w.Fails(t, 1, "kubectl", "run", "rude", "--namespace", home, "--image", "nginx"), `violates PodSecurity "restricted:latest"`)
}

func installedAgain(t *testing.T, w *world, c checkout) {
	versions := func() string {
		return w.kubectl(t, "get", "deployment,serviceaccount,role,rolebinding,networkpolicy,crd,service,validatingwebhookconfiguration,validatingadmissionpolicy", "--namespace", home,
			"-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.generation}{"\n"}{end}`)
	}
	before := versions()
	c.types(t, installPage, kubectlSection, 0)
	typed(t, c.dir, c.env, commands(t, upgradePage, upgradeSection, 0))
	typed(t, c.dir, c.env, commands(t, operationsPage, admissionSection, 0))
	if diff := cmp.Diff(before, versions()); diff != "" {
		t.Errorf("generations (-before +after):\n%s", diff)
	}
}

// aggregated checks the permissions of a user with a role in one namespace, and of one with a role
// in all.
func aggregated(t *testing.T, w *world, _ checkout) {
	w.namespace(t, "team")
	for _, role := range []string{"view", "edit", "admin"} {
		w.kubectl(t, "create", "rolebinding", role, "--namespace", "team", "--clusterrole", role, "--user", role)
		w.kubectl(t, "create", "clusterrolebinding", "all-"+role, "--clusterrole", role, "--user", "all-"+role)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	scope := map[string]string{}
	for _, definition := range definitions {
		if definition.Spec.Scope == "Cluster" { // checked without a namespace
			scope[definition.Name] = "--all-namespaces"
		}
	}
	may := func(user, verb, resource string, words ...string) bool {
		where := gocmp.Or(scope[resource], "--namespace=team")
		return w.Run(transcript.Quietly(t), append([]string{"kubectl", "auth", "can-i", "--quiet", "--as", user, where, verb, resource}, words...)...).Code == 0
	}
	// Aggregation by the controller takes a moment.
	transcript.Eventually(t, "the roles are aggregated", func() bool {
		return may("view", "list", "foos.samplecontroller.k8s.io") && may("admin", "create", "foos.samplecontroller.k8s.io") && may("all-admin", "create", "clusters.clusterprovisioner.rke.io")
	})
	for _, definition := range definitions {
		resource, namespaced := definition.Name, definition.Spec.Scope == "Namespaced"
		for _, test := range []struct {
			user, verb string
			want       bool
		}{
			{"view", "list", namespaced}, {"view", "create", false}, {"edit", "create", namespaced}, {"admin", "deletecollection", namespaced},
			{"all-view", "watch", true}, {"all-view", "patch", false}, {"all-edit", "patch", namespaced}, {"all-admin", "delete", true},
		} {
			if got := may(test.user, test.verb, resource); got != test.want {
				t.Errorf("%s may %s %s: %t, want %t", test.user, test.verb, resource, got, test.want)
			}
		}
		if may("all-admin", "update", resource, "--subresource=status") {
			t.Errorf("an admin may write the status of %s", resource)
		}
	}
	if !may("edit", "patch", "foos.samplecontroller.k8s.io", "--subresource=scale") {
		t.Error("an editor may not scale Foos")
	}
}

// elsewhere is the overlay of docs/install.md.
func elsewhere(t *testing.T, w *world, _ checkout) {
	overlay := documented(t, installPage, "kustomization.yaml")
	dir := overlayIn(t, overlay)
	rendered := w.kustomize(t, dir)
	transcript.Contains(t, rendered, "\n  name: my-keelson\n", "image: images.example/keelson:v1", "- --threads=32\n")
	if strings.Contains(rendered, home) {
		t.Errorf("the original namespace remains in:\n%s", rendered)
	}
	w.namespace(t, "my-keelson")
	w.apply(t, rendered, "--dry-run=server", "--validate=strict", "--force-conflicts")
	w.kubectl(t, "delete", "namespace", "my-keelson")
}

// onAnEngine is the overlay of docs/install-docker.md.
func onAnEngine(t *testing.T, w *world, _ checkout) {
	rendered := w.kustomize(t, overlayIn(t, documented(t, dockerPage, "docker/kustomization.yaml")))
	transcript.Contains(t, rendered, "- --controllers=virtualmachine\n", "- --vm-driver=docker\n")
	w.apply(t, rendered, "--dry-run=server", "--validate=strict", "--force-conflicts")
}

func uninstalled(t *testing.T, w *world, c checkout) {
	typed(t, c.dir, c.env, commands(t, uninstallPage, kubectlSection, 0))
	out := w.kubectl(t, "get", "namespace,crd,clusterrole,clusterrolebinding,priorityclass,validatingadmissionpolicy", "-o", "name")
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, "keelson") {
			t.Errorf("leftover: %s", line)
		}
	}
}
