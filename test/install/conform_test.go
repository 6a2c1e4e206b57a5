package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// newSchemas writes a JSON schema for each kind of an API server, including Keelson's and those of
// the Prometheus operator, and returns the directory. It downloads nothing.
func newSchemas(t *testing.T) string {
	t.Helper()
	config := env.Own(t)
	env.Define(t, config)
	defineOperator(t, config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, path := range pathsOf(t, client.Discovery().OpenAPIV3(), append(definitions, operatorDefinitions(t)...)) {
		raw, err := path.Schema(runtime.ContentTypeJSON)
		if err != nil {
			t.Fatal(err)
		}
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(raw, &document); err != nil {
			t.Fatal(err)
		}
		for _, schema := range document.Components.Schemas {
			strict(schema)
		}
		for name, schema := range document.Components.Schemas {
			kinds, _ := schema["x-kubernetes-group-version-kind"].([]any) // most have none
			if len(kinds) != 1 {
				continue // DeleteOptions and WatchEvent are in each group, and in no manifest
			}
			kind := kinds[0].(map[string]any)
			// kubeconform uses the same name for the group of v1.
			group, version := kind["group"].(string), kind["version"].(string)
			if group == "" {
				group = version
			}
			file := strings.Join([]string{group, version, strings.ToLower(kind["kind"].(string)) + ".json"}, "_")
			text, err := json.Marshal(map[string]any{"$ref": "#/components/schemas/" + name, "components": document.Components})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// pathsOf returns the documents of the API once they have the kinds of the CRDs, which takes a
// moment.
func pathsOf(t *testing.T, api openapi.Client, definitions []*apiextensionsv1.CustomResourceDefinition) map[string]openapi.GroupVersion {
	t.Helper()
	var paths map[string]openapi.GroupVersion
	transcript.Eventually(t, "the API describes the kinds", func() bool {
		var err error
		if paths, err = api.Paths(); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(definitions, func(definition *apiextensionsv1.CustomResourceDefinition) bool {
			path := paths["apis/"+definition.Spec.Group+"/"+definition.Spec.Versions[0].Name]
			if path == nil {
				return true
			}
			raw, err := path.Schema(runtime.ContentTypeJSON)
			return err != nil || !strings.Contains(string(raw), `"kind":"`+definition.Spec.Names.Kind+`"`)
		})
	})
	return paths
}

// strict makes a schema reject unknown fields, as the API server does with strict field validation.
func strict(part any) {
	switch part := part.(type) {
	case map[string]any:
		_, open := part["additionalProperties"]
		preserves := part["x-kubernetes-preserve-unknown-fields"] == true || part["x-kubernetes-embedded-resource"] == true
		if _, ok := part["properties"].(map[string]any); ok && part["type"] == "object" && !open && !preserves {
			part["additionalProperties"] = false
		}
		for _, inner := range part {
			strict(inner)
		}
	case []any:
		for _, inner := range part {
			strict(inner)
		}
	}
}

// nonconformities returns what kubeconform finds in manifests, by their names. All are given to one process, which reads each schema
// once.
func nonconformities(t *testing.T, schemas string, manifests map[string]string) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"-output", "json", "-schema-location", schemas + "/{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json"}
	names := map[string]string{} // by file
	for name, manifest := range manifests {
		file := filepath.Join(dir, strconv.Itoa(len(names))+".yaml")
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		names[file] = name
		args = append(args, file)
	}
	out, err := exec.CommandContext(t.Context(), tool(t, "go.helm.mod", "kubeconform"), args...).Output() // fails if it finds something
	var report struct {
		Resources []struct{ Filename, Kind, Name, Msg string }
	}
	if parsed := json.Unmarshal(out, &report); parsed != nil {
		t.Fatalf("kubeconform: %v, %v\n%s%s", err, parsed, out, stderrOf(err))
	}
	if (err != nil) != (len(report.Resources) > 0) {
		t.Errorf("kubeconform: %v\n%s%s", err, out, stderrOf(err))
	}
	found := map[string][]string{}
	for _, r := range report.Resources {
		found[names[r.Filename]] = append(found[names[r.Filename]], r.Kind+" "+r.Name+": "+r.Msg)
	}
	return found
}

// examples returns the manifests of the examples, by where they come from.
func examples(t *testing.T) map[string]string {
	t.Helper()
	manifests := map[string]string{}
	files, err := filepath.Glob("../../examples/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		manifests[file] = string(raw)
	}
	for _, args := range [][]string{
		{binary(t, "kubectl"), "kustomize", "../../examples/gitops/kustomize/production"},
		{tool(t, "go.helm.mod", "helm"), "template", "../../examples/gitops/helm"},
	} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, stderrOf(err))
		}
		manifests[strings.Join(args, " ")] = string(out)
	}
	return manifests
}

// grantsIn returns the individual permissions of a role in a manifest.
func grantsIn(o *unstructured.Unstructured) []grant {
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		panic(err) // it was parsed as YAML
	}
	return grants(o.GetName(), o.GetNamespace(), role.Rules)
}
