// Package crds holds the CustomResourceDefinitions of every kind of this project.
// They are generated from the Go types by `make generate`; the binary, the tests
// and the charts all take them from here, so that they install the same bytes.
package crds

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *_*.yaml
var files embed.FS

// All returns every CustomResourceDefinition, sorted by name. Each call returns
// fresh objects, which the caller may change. An error means that this binary was
// built from a broken file.
func All() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the embedded CustomResourceDefinitions: %w", err)
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(entries))
	for _, entry := range entries {
		raw, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read embedded file %s: %w", entry.Name(), err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, crd); err != nil {
			return nil, fmt.Errorf("parse embedded file %s: %w", entry.Name(), err)
		}
		all = append(all, crd)
	}
	slices.SortFunc(all, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}
