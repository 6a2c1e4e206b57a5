// Package admission holds the ValidatingAdmissionPolicies of every kind, and their bindings. The binary and the tests
// take them from here.
package admission

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// All returns every policy and binding, each file's in its order. Each call returns fresh objects, which the caller may
// change. An error means that this binary was built from a broken file.
func All() ([]*unstructured.Unstructured, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the embedded admission policies: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, entry := range entries {
		if entry.Name() == "kustomization.yaml" {
			continue
		}
		raw, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read embedded file %s: %w", entry.Name(), err)
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				return nil, fmt.Errorf("parse embedded file %s: %w", entry.Name(), err)
			}
			all = append(all, object)
		}
	}
	return slices.Clip(all), nil
}
