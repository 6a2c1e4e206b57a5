package crds_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/api/crds"
)

// all returns the definitions, which no test may do without.
func all(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := crds.All()
	if err != nil {
		t.Fatalf("All: %v", err)
	}
	if len(definitions) == 0 {
		t.Fatal("All returned no definition")
	}
	return definitions
}

func TestAllIsSortedByName(t *testing.T) {
	var names []string
	for _, crd := range all(t) {
		names = append(names, crd.Name)
	}
	if sorted := slices.Sorted(slices.Values(names)); !slices.Equal(names, sorted) {
		t.Errorf("All returned %v, want %v", names, sorted)
	}
	for _, want := range []string{"crontabs.stable.example.com", "foos.samplecontroller.k8s.io", "sampleresources.example.com", "virtualmachines.cloudnative.tw"} {
		if !slices.Contains(names, want) {
			t.Errorf("All lacks %s", want)
		}
	}
}

func TestAllReturnsFreshObjects(t *testing.T) {
	all(t)[0].Name = "changed"
	if got := all(t)[0].Name; got == "changed" {
		t.Error("a change to a returned definition is seen by the next caller")
	}
}

// kubectl explain prints the descriptions, so a field without one is a field without
// documentation.
func TestEveryFieldHasADescription(t *testing.T) {
	for _, crd := range all(t) {
		for _, version := range crd.Spec.Versions {
			kind := crd.Spec.Names.Kind
			for _, path := range undescribed(version.Schema.OpenAPIV3Schema, kind) {
				// The API server describes metadata, and kubectl explain job.spec the fields of a Job.
				if path != kind+".metadata" && !strings.HasPrefix(path, "CronTab.spec.jobTemplate.") {
					t.Errorf("%s has no description", path)
				}
			}
		}
	}
}

// undescribed returns the paths of what has no description in schema and below.
func undescribed(schema *apiextensionsv1.JSONSchemaProps, path string) []string {
	var found []string
	if strings.TrimSpace(schema.Description) == "" {
		found = append(found, path)
	}
	for name, property := range schema.Properties {
		found = append(found, undescribed(&property, path+"."+name)...)
	}
	// Elements of a list or map are described by the field; fields in them are not.
	for _, element := range elements(schema) {
		for name, property := range element.Properties {
			found = append(found, undescribed(&property, path+"[]."+name)...)
		}
	}
	slices.Sort(found)
	return found
}

func elements(schema *apiextensionsv1.JSONSchemaProps) []*apiextensionsv1.JSONSchemaProps {
	var found []*apiextensionsv1.JSONSchemaProps
	if schema.Items != nil && schema.Items.Schema != nil {
		found = append(found, schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		found = append(found, schema.AdditionalProperties.Schema)
	}
	return found
}

// What holds for every kind: `kubectl get keelson` lists it, its status is written
// apart from its spec, and its columns say how old it is and whether it is ready.
func TestEveryKindHasTheSameManners(t *testing.T) {
	for _, crd := range all(t) {
		t.Run(crd.Name, func(t *testing.T) {
			if !slices.Contains(crd.Spec.Names.Categories, "keelson") {
				t.Error("it is not in the category keelson")
			}
			for _, version := range crd.Spec.Versions {
				if version.Subresources == nil || version.Subresources.Status == nil {
					t.Errorf("%s has no status subresource", version.Name)
				}
				var columns []string
				for _, column := range version.AdditionalPrinterColumns {
					columns = append(columns, column.Name)
					if column.Description == "" && column.Name != "Age" {
						t.Errorf("%s: column %s has no description", version.Name, column.Name)
					}
				}
				for _, want := range []string{"Ready", "Age"} {
					if !slices.Contains(columns, want) {
						t.Errorf("%s has the columns %v and not %s", version.Name, columns, want)
					}
				}
			}
		})
	}
}

// The API server refuses a group below k8s.io without this annotation. It takes the
// address of an API review, which there was none of, or a reason why not.
func TestProtectedGroupsSayThatTheyAreUnapproved(t *testing.T) {
	got := map[string]bool{}
	for _, crd := range all(t) {
		if apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
			state, _ := apihelpers.GetAPIApprovalState(crd.Annotations)
			got[crd.Name] = state == apihelpers.APIApprovalBypassed
		}
	}
	want := map[string]bool{"foos.samplecontroller.k8s.io": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions in protected groups, and whether they say so (-want +got):\n%s", diff)
	}
}
