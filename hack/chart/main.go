// Command chart writes the Helm chart from the kustomize base, so that both install the same:
//
//	go run ./hack/chart config/default charts/keelson
//
// It makes a template of every object of the base, with the values of values.go in the places that edits.go names, the
// roles of the controllers as templates that a selection of controllers can be made of, and the values with their schema
// and their page. What a person writes in the chart - Chart.yaml, the helpers, the notes - begins with another name than
// what is generated, and stays.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart BASE CHART")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "error: make the chart %s from %s: %v\n", os.Args[2], os.Args[1], err)
		os.Exit(1)
	}
}

func run(base, chart string) error {
	objects, err := load(base)
	if err != nil {
		return err
	}
	files, err := templates(objects)
	if err != nil {
		return err
	}
	rules, err := roleTemplates(objects)
	if err != nil {
		return err
	}
	files["templates/_rules.tpl"] = rules
	if files["values.schema.json"], err = schemaOf(values); err != nil {
		return err
	}
	files["values.yaml"], files["README.md"] = valuesFile(values), page(values)
	return write(chart, files)
}

// generatedPrefix begins the names of generated templates.
const generatedPrefix = "keelson-"

// write replaces what was generated before.
func write(chart string, files map[string]string) error {
	old, err := filepath.Glob(filepath.Join(chart, "templates", generatedPrefix+"*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for name, text := range files {
		path := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// object is one of the base.
type object map[string]any

func (o object) kind() string { return o["kind"].(string) }
func (o object) name() string { return o["metadata"].(map[string]any)["name"].(string) }

// load reads the objects of a kustomization, in their order. It knows resources and labels, which is all that the base
// has; anything else that changes objects is an error.
func load(dir string) ([]object, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var kustomization struct {
		Namespace string   `json:"namespace"`
		Resources []string `json:"resources"`
		Labels    []any    `json:"labels"`
	}
	if err := yaml.UnmarshalStrict(raw, &kustomization); err != nil {
		return nil, fmt.Errorf("parse %s/kustomization.yaml, of which the chart knows namespace, resources and labels: %w", dir, err)
	}
	var all []object
	for _, resource := range kustomization.Resources {
		path := filepath.Join(dir, resource)
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		read := loadFile
		if info.IsDir() {
			read = load
		}
		objects, err := read(path)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

func loadFile(path string) ([]object, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []object
	for document := range strings.SplitSeq("\n"+string(raw), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all, nil
}
