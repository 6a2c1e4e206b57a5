package rbac_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/keelson-dev/keelson/config/rbac"
)

func manager(t *testing.T) *rbacv1.ClusterRole {
	t.Helper()
	role, home, err := rbac.Manager()
	if err != nil {
		t.Fatal(err)
	}
	if home.Name != "keelson-manager" || home.Namespace != rbac.Home || len(home.Rules) == 0 {
		t.Fatalf("got role %s/%s with %d rules, want %s/keelson-manager with some", home.Namespace, home.Name, len(home.Rules), rbac.Home)
	}
	if role.Name != "keelson-manager" || len(role.Rules) == 0 {
		t.Fatalf("got role %q with %d rules, want keelson-manager with some", role.Name, len(role.Rules))
	}
	return role
}

// A wildcard grants what nobody has thought of yet.
func TestManagerHasNoWildcards(t *testing.T) {
	for _, rule := range manager(t).Rules {
		if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
			t.Errorf("rule %+v has a wildcard", rule)
		}
	}
}

func TestManagerMayWhatItsControllersMay(t *testing.T) {
	rules, err := rbac.ForController("foo")
	if err != nil {
		t.Fatal(err)
	}
	granted := singles(manager(t).Rules)
	for single := range singles(rules) {
		if !granted[single] {
			t.Errorf("the controller needs %q, which the manager's role lacks", single)
		}
	}
}

// singles returns every "verb resource.group" of rules.
func singles(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				for _, group := range rule.APIGroups {
					all[verb+" "+resource+"."+group] = true
				}
			}
		}
	}
	return all
}

func TestUnknownController(t *testing.T) {
	if _, err := rbac.ForController("bar"); err == nil || !strings.Contains(err.Error(), "internal/controller/bar") {
		t.Errorf("got %v, want an error that says where its markers belong", err)
	}
}
