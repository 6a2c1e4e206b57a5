package manager

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/api/crds"
)

// Each entry of the list is whole, and asks for no more than it can name.
func TestListOfControllers(t *testing.T) {
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	var defined []schema.GroupVersionResource
	for _, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			defined = append(defined, schema.GroupVersionResource{
				Group: definition.Spec.Group, Version: version.Name, Resource: definition.Spec.Names.Plural,
			})
		}
	}
	if all := Names(); !slices.Equal(slices.Compact(slices.Sorted(slices.Values(all))), slices.Sorted(slices.Values(all))) {
		t.Errorf("a name is there twice: %v", all)
	}
	for _, c := range controllers {
		t.Run(c.Name, func(t *testing.T) {
			for _, resource := range c.Resources {
				if !slices.Contains(defined, resource) {
					t.Errorf("no CustomResourceDefinition below api/crds for %v", resource)
				}
			}
			scheme := runtime.NewScheme()
			if err := c.AddToScheme(scheme); err != nil {
				t.Errorf("AddToScheme: %v", err)
			}
			for _, resource := range c.Resources {
				if !scheme.IsVersionRegistered(resource.GroupVersion()) {
					t.Errorf("AddToScheme does not add %v", resource.GroupVersion())
				}
			}
			rules, err := c.Permissions()
			if err != nil || len(rules) == 0 {
				t.Errorf("Permissions: got %v, %v", rules, err)
			}
			for _, rule := range rules {
				for _, word := range slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs) {
					if strings.Contains(word, "*") {
						t.Errorf("a wildcard: %v", rule)
					}
				}
			}
			if (c.Add == nil) == (c.AddWith == nil) {
				t.Error("not exactly one of Add and AddWith")
			}
		})
	}
}

// Each definition has a controller: a kind that nobody looks after helps nobody.
func TestEveryKindHasAController(t *testing.T) {
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		served := slices.ContainsFunc(controllers, func(c Controller) bool {
			return slices.ContainsFunc(c.Resources, func(r schema.GroupVersionResource) bool {
				return r.Group == definition.Spec.Group && r.Resource == definition.Spec.Names.Plural
			})
		})
		if !served {
			t.Errorf("no controller in controllers.go for %s", definition.Name)
		}
	}
}
