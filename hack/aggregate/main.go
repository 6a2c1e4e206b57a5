// Command aggregate prints ClusterRoles that aggregate permissions for Keelson's kinds to view,
// edit and admin:
//
// go run ./hack/aggregate >config/rbac/aggregated.yaml
//
// Cluster-scoped objects - clusters, their snapshots and their kubeconfigs - can only be changed by an admin of the
// whole cluster.
package main

import (
	"fmt"
	"os"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/internal/access/client"
)

var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"create", "delete", "deletecollection", "patch", "update"}
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "error: create the aggregated roles: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	// A role aggregated to view is also part of edit and admin, one of edit also part of admin.
	for _, role := range []*rbacv1.ClusterRole{
		newRole("view", append(readRules(definitions), newAccessRule(client.Log, client.Usage))),
		newRole("edit", append(writeRules(definitions, apiextensionsv1.NamespaceScoped), newAccessRule(client.Console, client.PortForward, client.Screen, client.Screenshot))),
		newRole("admin", append(writeRules(definitions, apiextensionsv1.ClusterScoped), newProxyRule())),
	} {
		raw, err := yaml.Marshal(role)
		if err != nil {
			return err
		}
		fmt.Printf("---\n%s", raw)
	}
	return nil
}

func newRole(to string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   "keelson-" + to,
			Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-" + to: "true"},
		},
		Rules: rules,
	}
}

// readRules grant read access to every kind, its status and its scale.
func readRules(definitions []*apiextensionsv1.CustomResourceDefinition) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, definition := range definitions {
		rules = append(rules, newRule(definition, append([]string{""}, subresources(definition)...), readVerbs))
	}
	return rules
}

// writeRules grant write access to the kinds of a scope and to their scale. Only controllers write
// status.
func writeRules(definitions []*apiextensionsv1.CustomResourceDefinition, scope apiextensionsv1.ResourceScope) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, definition := range definitions {
		if definition.Spec.Scope != scope {
			continue
		}
		rules = append(rules, newRule(definition, []string{""}, writeVerbs))
		if slices.Contains(subresources(definition), "/scale") {
			rules = append(rules, newRule(definition, []string{"/scale"}, []string{"patch", "update"}))
		}
	}
	return rules
}

// newAccessRule grants access to machines by subresources of VirtualMachine in the access API.
func newAccessRule(subresources ...string) rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{client.Group}, Verbs: []string{"get"}}
	for _, subresource := range subresources {
		rule.Resources = append(rule.Resources, client.Resource+"/"+subresource)
	}
	return rule
}

// newProxyRule grants access to the APIs of Clusters, with all permissions there: it is for those who can read the Secrets
// with their kubeconfigs anyway.
func newProxyRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{client.Group}, Resources: []string{client.Clusters + "/" + client.Proxy},
		Verbs: []string{"create", "delete", "get", "patch", "update"},
	}
}

func newRule(definition *apiextensionsv1.CustomResourceDefinition, suffixes, verbs []string) rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{definition.Spec.Group}, Verbs: verbs}
	for _, suffix := range suffixes {
		rule.Resources = append(rule.Resources, definition.Spec.Names.Plural+suffix)
	}
	return rule
}

// subresources returns the subresources of all versions, as suffixes.
func subresources(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var all []string
	for _, version := range definition.Spec.Versions {
		if s := version.Subresources; s != nil {
			if s.Scale != nil {
				all = append(all, "/scale")
			}
			if s.Status != nil {
				all = append(all, "/status")
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
