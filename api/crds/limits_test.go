package crds_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// The example policy limits the machines of the namespaces that it selects, and no others.
func TestLimitsOfMachines(t *testing.T) {
	config := env.Own(t)
	env.Define(t, config)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-b"}}
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	applyExample(t, client, "virtualmachine-limits.yaml")
	tryKind := func(namespace, kind, spec string) error {
		_, err := client.Resource(resources[kind]).Namespace(namespace).Create(t.Context(), newObject(t, kind, "", spec),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	try := func(namespace, spec string) error { return tryKind(namespace, "VirtualMachine", spec) }
	// The API server applies a new policy a moment later.
	harness.Eventually(t, "the policy is in force", func() bool { return apierrors.IsInvalid(try("team-a", `{"resource":{"cpu":9}}`)) })
	for _, tt := range []struct{ name, spec, says string }{
		{"nothing is said", `{}`, ""},
		{"exactly the limits", `{"resource":{"cpu":8,"memory":"16Gi","rootDisk":"100Gi"},"disks":[{"name":"a","size":"60Gi"},{"name":"b","size":"40Gi"}]}`, ""},
		{"processors", `{"resource":{"cpu":9}}`, "spec.resource.cpu: at most 8"},
		{"memory", `{"resource":{"memory":"17Gi"}}`, "spec.resource.memory: at most 16Gi"},
		{"the root disk", `{"resource":{"rootDisk":"201Gi"}}`, "at most 200Gi together"},
		{"the sum of disks", `{"resource":{"rootDisk":"100Gi"},"disks":[{"name":"a","size":"60Gi"},{"name":"b","size":"41Gi"}]}`, "at most 200Gi together"},
		{"a VirtualDisk, which has limits of its own", `{"disks":[{"name":"a","virtualDisk":"b"}]}`, ""},
		{"a disk without a size", `{"disks":[{"name":"a","image":{"path":"/a"}}]}`, "every disk needs a size"},
	} {
		err := try("team-a", tt.spec)
		switch {
		case tt.says == "" && err != nil:
			t.Errorf("%s: it was refused: %v", tt.name, err)
		case tt.says != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
	harness.Eventually(t, "the policy of VirtualDisks is in force", func() bool {
		return apierrors.IsInvalid(tryKind("team-a", "VirtualDisk", `{"size":"101Gi"}`))
	})
	if err := tryKind("team-a", "VirtualDisk", `{"size":"100Gi"}`); err != nil {
		t.Errorf("a VirtualDisk within the limits: %v", err)
	}
	if err := tryKind("team-a", "VirtualDisk", `{"from":{"virtualDisk":"a"}}`); !apierrors.IsInvalid(err) {
		t.Errorf("a VirtualDisk without a size: %v", err)
	}
	if err := try("team-b", `{"resource":{"cpu":9}}`); err != nil {
		t.Errorf("another namespace is limited: %v", err)
	}
}

// applyExample creates the objects of an example.
// A new cluster takes all examples at once, in the order of their files: nothing is in a namespace that none of them has created.
func TestNamespacesOfExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the examples are missing: %v", err)
	}
	there := map[string]bool{"": true, metav1.NamespaceDefault: true, metav1.NamespaceSystem: true}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if !there[object.GetNamespace()] {
				t.Errorf("%s: the namespace of %s %s is not created", filepath.Base(file), object.GetKind(), object.GetName())
			}
			if object.GetKind() == "Namespace" {
				there[object.GetName()] = true
			}
		}
	}
}

func applyExample(t *testing.T, client dynamic.Interface, file string) {
	t.Helper()
	raw, err := os.ReadFile("../../examples/manifests/" + file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	kinds := map[string]schema.GroupVersionResource{
		"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
		"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		"Namespace":                        {Version: "v1", Resource: "namespaces"},
		"ResourceQuota":                    {Version: "v1", Resource: "resourcequotas"},
	}
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		resource := client.Resource(kinds[object.GetKind()])
		var create dynamic.ResourceInterface = resource
		if object.GetNamespace() != "" {
			create = resource.Namespace(object.GetNamespace())
		}
		if _, err := create.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
	}
}
