// Command chart generates the Helm chart from the kustomize base and its components, so that both
// install the same objects:
//
// go run ./hack/chart charts/keelson config/default config/monitoring
//
// It generates a template for each object with the values of values.go, inserted as edits.go
// defines, the controllers' roles as templates that depend on the selected controllers, and the
// values with their schema and their page. Handwritten files - Chart.yaml, the helpers, the notes -
// have names without the prefix of generated ones, and are kept.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: chart CHART BASE [COMPONENT...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: generate the chart %s from %s: %v\n", os.Args[1], strings.Join(os.Args[2:], ", "), err)
		os.Exit(1)
	}
}

func run(chart string, sources []string) error {
	var objects []object
	for _, source := range sources {
		more, err := load(source)
		if err != nil {
			return err
		}
		objects = append(objects, more...)
	}
	env, err := envTemplate(objects) // before the edits
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
	files["templates/_rules.tpl"], files["templates/_env.tpl"] = rules, env
	if files["values.schema.json"], err = schemaOf(values); err != nil {
		return err
	}
	files["values.yaml"], files["README.md"] = valuesFile(values), page(values)
	return write(chart, files)
}

// generatedPrefix is the prefix of the names of generated templates.
const generatedPrefix = "keelson-"

// write replaces the generated files.
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
