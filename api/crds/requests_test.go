package crds_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// What is done once is requested in one form: a time in a field <verb>RequestedAt, which nobody has to set.
func TestRequestsAreTimes(t *testing.T) {
	found := 0
	for _, crd := range all(t) {
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		eachProperty(&spec, "spec", func(path, name string, field *apiextensionsv1.JSONSchemaProps) {
			isRequest := strings.HasSuffix(name, "RequestedAt") || name == "requestedAt"
			if strings.Contains(path, "jobTemplate") || !isRequest && !strings.HasSuffix(name, "At") {
				return
			}
			if !isRequest || field.Type != "string" || field.Format != "date-time" || field.Default != nil {
				t.Errorf("%s: %s is no time <verb>RequestedAt without a default", crd.Name, path)
			}
			found++
		})
	}
	if found < 8 {
		t.Errorf("only %d requests were found", found)
	}
}

// eachProperty calls f for each field below a schema.
func eachProperty(schema *apiextensionsv1.JSONSchemaProps, path string, f func(path, name string, field *apiextensionsv1.JSONSchemaProps)) {
	if schema.Items != nil && schema.Items.Schema != nil {
		eachProperty(schema.Items.Schema, path+"[]", f)
	}
	for name, field := range schema.Properties {
		f(path+"."+name, name, &field)
		eachProperty(&field, path+"."+name, f)
	}
}

// A tool that applies a manifest again and again neither resets what a user has requested nor is in conflict with it.
func TestGitOpsLeavesRequests(t *testing.T) {
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	namespace := env.Namespace(t)
	const at = "2026-11-25T18:00:00Z"
	for _, test := range []struct{ kind, spec, request string }{
		{"CronTab", `{"schedule":"@daily","jobTemplate":{"containers":[{"name":"a","image":"a"}]}}`, `{"runRequestedAt":"` + at + `"}`},
		{"VirtualMachine", `{"action":"active"}`, `{"restartRequestedAt":"` + at + `","wakeRequestedAt":"` + at + `","restore":{"snapshot":"a","requestedAt":"` + at + `"}}`},
	} {
		objects := client.Resource(resources[test.kind]).Namespace(namespace)
		object := newObject(t, test.kind, "", test.spec)
		object.SetName("gitops")
		object.SetGenerateName("")
		apply := func() *unstructured.Unstructured {
			t.Helper()
			got, err := objects.Apply(t.Context(), "gitops", object, metav1.ApplyOptions{FieldManager: "gitops"})
			if err != nil {
				t.Fatalf("%s: apply: %v", test.kind, err)
			}
			return got
		}
		apply()
		patch := []byte(`{"spec":` + test.request + `}`)
		requested, err := objects.Patch(t.Context(), "gitops", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "keelson-cli"})
		if err != nil {
			t.Fatalf("%s: %v", test.kind, err)
		}
		if again := apply(); again.GetResourceVersion() != requested.GetResourceVersion() {
			t.Errorf("%s: the tool has changed the object to %v", test.kind, again.Object["spec"])
		}
	}
}
