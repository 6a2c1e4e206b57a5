package crds_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// TestObjectsOfReleases stores objects as releases wrote them, with their status. Nothing in them is unknown, invalid or lost.
func TestObjectsOfReleases(t *testing.T) {
	files, err := filepath.Glob("testdata/v*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < len(all(t)) {
		t.Fatalf("%d objects of releases, want at least one of each kind", len(files))
	}
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	namespace := env.Namespace(t)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.YAMLToJSON(raw)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(text); err != nil {
				t.Fatal(err)
			}
			want := object.DeepCopy()
			resource, ok := resources[object.GetKind()]
			if !ok {
				t.Fatalf("kind %s is not in the list of this test", object.GetKind())
			}
			var writer dynamic.ResourceInterface = client.Resource(resource)
			if !isClusterScoped[object.GetKind()] {
				writer = client.Resource(resource).Namespace(namespace)
			}
			created, err := writer.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			if status, ok := want.Object["status"]; ok {
				created.Object["status"] = status
			}
			stored, err := writer.UpdateStatus(t.Context(), created, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"apiVersion", "spec", "status"} {
				if diff := cmp.Diff(want.Object[part], stored.Object[part]); diff != "" {
					t.Errorf("%s (-written +stored):\n%s", part, diff)
				}
			}
		})
	}
}
