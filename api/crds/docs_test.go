package crds_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The page of a kind has every field, condition and reason, and its examples are
// accepted.
func TestPageOfCronTab(t *testing.T) {
	raw, err := os.ReadFile("../../docs/crontab.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	for _, crd := range all(t) {
		if crd.Spec.Names.Kind != "CronTab" {
			continue
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			for field := range schema.Properties[part].Properties {
				if !strings.Contains(page, "`"+field+"`") {
					t.Errorf("the page does not name %s.%s", part, field)
				}
			}
		}
	}
	reasons, err := os.ReadFile("../stable/v1/conditions.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\t(?:Reason|Condition)\w+ = "(\w+)"$`).FindAllStringSubmatch(string(reasons), -1)
	if len(found) < 10 {
		t.Fatalf("only %d reasons and conditions were found in the source", len(found))
	}
	for _, match := range found {
		if !strings.Contains(page, "`"+match[1]+"`") {
			t.Errorf("the page does not name %s", match[1])
		}
	}
	namespace := env.Namespace(t)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(examples) < 2 {
		t.Fatalf("there are %d examples", len(examples))
	}
	for _, example := range examples {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(example[1]), &object.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := create(t, namespace, object); err != nil {
			t.Errorf("example %s was refused: %v", object.GetName(), err)
		}
	}
}
