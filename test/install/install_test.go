package install

import (
	gocmp "cmp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// What a user types to install, to look after it, and to uninstall.
func TestKustomize(t *testing.T) {
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
		{"view, edit and admin know our kinds", aggregated},
		{"in another namespace, with another image", elsewhere},
		{"uninstalled, nothing is left", uninstalled},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, w, c) }) {
			return // the others stand on this one
		}
	}
}

const base = "../../config/default"

func dryRun(t *testing.T, w *world, _ checkout) {
	// What is in a namespace that is not there cannot be tried.
	w.namespace(t, home)
	out := w.apply(t, w.kustomize(t, base), "--dry-run=server", "--validate=strict")
	transcript.Contains(t, out, "deployment.apps/keelson-manager serverside-applied (server dry run)")
	w.kubectl(t, "delete", "namespace", home)
}

func installed(t *testing.T, w *world, c checkout) {
	// Its pods are admitted, and the simulated nodes say that they run.
	transcript.Contains(t, c.types(t, kubectlSection, 0), "deployment.apps/keelson-manager serverside-applied", "successfully rolled out")
	if got := w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home, "-o", "jsonpath={.spec.template.spec.containers[*].image}"); got != image {
		t.Errorf("the image is %s, want %s", got, image)
	}
	pods := w.kubectl(t, "get", "pods", "--namespace", home, "-o", "jsonpath={range .items[*]}{.spec.priority} {end}")
	if diff := cmp.Diff("1000000 1000000 ", pods); diff != "" {
		t.Errorf("priorities of two replicas (-want +got):\n%s", diff)
	}
	w.Until(t, "one may be disrupted", transcript.Is("1"), "kubectl", "get", "poddisruptionbudget", "keelson-manager",
		"--namespace", home, "-o", "jsonpath={.status.disruptionsAllowed}")
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
	c.types(t, kubectlSection, 0)
	typed(t, c.dir, c.env, commands(t, operationsPage, upgradeSection, 0))
	typed(t, c.dir, c.env, commands(t, operationsPage, admissionSection, 0))
	if diff := cmp.Diff(before, versions()); diff != "" {
		t.Errorf("generations (-before +after):\n%s", diff)
	}
}

// aggregated asks for a user with a role in one namespace, and for one with a role in all.
func aggregated(t *testing.T, w *world, _ checkout) {
	w.namespace(t, "team")
	for _, role := range []string{"view", "edit", "admin"} {
		w.kubectl(t, "create", "rolebinding", role, "--namespace", "team", "--clusterrole", role, "--user", role)
		w.kubectl(t, "create", "clusterrolebinding", "all-"+role, "--clusterrole", role, "--user", "all-"+role)
	}
	// What has no namespace is asked for without one.
	scope := map[string]string{"clusters.clusterprovisioner.rke.io": "--all-namespaces", "kubeconfigs.clusterprovisioner.rke.io": "--all-namespaces"}
	may := func(user, verb, resource string, words ...string) bool {
		where := gocmp.Or(scope[resource], "--namespace=team")
		return w.Run(transcript.Quietly(t), append([]string{"kubectl", "auth", "can-i", "--quiet", "--as", user, where, verb, resource}, words...)...).Code == 0
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	// The controller that aggregates needs a moment.
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

// elsewhere is the overlay that docs/install.md shows.
func elsewhere(t *testing.T, w *world, _ checkout) {
	overlay := documented(t, "kustomization.yaml")
	dir := overlayIn(t, overlay)
	rendered := w.kustomize(t, dir)
	transcript.Contains(t, rendered, "\n  name: my-keelson\n", "image: images.example/keelson:v1", "- --controllers=*,-virtualmachine,-cluster,-kubeconfig\n")
	if strings.Contains(rendered, home) {
		t.Errorf("the name of the namespace is left somewhere in:\n%s", rendered)
	}
	w.namespace(t, "my-keelson")
	w.apply(t, rendered, "--dry-run=server", "--validate=strict", "--force-conflicts")
	w.kubectl(t, "delete", "namespace", "my-keelson")
}

func uninstalled(t *testing.T, w *world, c checkout) {
	c.types(t, kubectlSection, 1)
	out := w.kubectl(t, "get", "namespace,crd,clusterrole,clusterrolebinding,priorityclass,validatingadmissionpolicy", "-o", "name")
	for line := range strings.SplitSeq(out, "\n") {
		if strings.Contains(line, "keelson") {
			t.Errorf("this is left: %s", line)
		}
	}
}
