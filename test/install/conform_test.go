package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
			for _, kind := range kinds {
				kind := kind.(map[string]any)
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

// conforms fails the test unless manifests match their schemas.
func conforms(t *testing.T, schemas, manifests string) {
	t.Helper()
	if out, err := conformity(t, schemas, manifests); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func conformity(t *testing.T, schemas, manifests string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "go.helm.mod", "kubeconform"), "-summary", "-verbose",
		"-schema-location", schemas+"/{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json", "-")
	cmd.Stdin = strings.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// grantsIn returns the individual permissions of a role in a manifest.
func grantsIn(o *unstructured.Unstructured) []grant {
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		panic(err) // it was parsed as YAML
	}
	return grants(o.GetName(), o.GetNamespace(), role.Rules)
}
