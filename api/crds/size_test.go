package crds_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// Client-side apply writes each definition into an annotation of it. The API server limits those of an object to 256 KiB.
func TestDefinitionsFitIntoAnAnnotation(t *testing.T) {
	const annotations, together, templateLines = 256 << 10, 1 << 20, 5000
	paths, err := filepath.Glob("*.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	sum := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum += len(text)
		applied, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(applied) > annotations*9/10 {
			t.Errorf("%s has %d bytes as JSON, which leaves no room in an annotation", path, len(applied))
		}
	}
	if sum > together {
		t.Errorf("all definitions have %d bytes, more than %d", sum, together)
	}
	for _, crd := range all(t) {
		if crd.Spec.Names.Kind != "CronTab" {
			continue
		}
		template := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["jobTemplate"]
		raw, err := json.Marshal(&template)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.JSONToYAML(raw)
		if lines := bytes.Count(text, []byte("\n")); err != nil || lines > templateLines {
			t.Errorf("the schema of jobTemplate has %d lines, %v", lines, err)
		}
	}
}
