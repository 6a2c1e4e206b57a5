package rehearsal

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func newResource(group, version, name, kind string) Resource {
	return Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name}, Kind: kind, Preferred: true, Updatable: true}
}

func TestCompare(t *testing.T) {
	workloads := newResource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
	newer := newResource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload")
	services := newResource("", "v1", "services", "Service")
	crontabs := newResource("stable.example.com", "v1", "crontabs", "CronTab")
	wrote := func(r Resource, objects int, managers ...string) map[schema.GroupVersionResource]Use {
		return map[schema.GroupVersionResource]Use{r.GroupVersionResource: {Objects: objects, Managers: managers}}
	}
	stored := func(r Resource, objects int) map[schema.GroupResource]int {
		return map[schema.GroupResource]int{r.GroupResource(): objects}
	}
	refusal := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", field.ErrorList{field.Required(field.NewPath("spec", "ports"), "")})
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errors.New("changed"))
	for _, test := range []struct {
		name   string
		before Inventory
		after  Checked
		want   []Finding
	}{
		{"nothing changes", Inventory{Resources: []Resource{services}, Objects: stored(services, 3)},
			Checked{Inventory: &Inventory{Resources: []Resource{services}}}, nil},
		{"a resource is not served any more", Inventory{Resources: []Resource{workloads}, Objects: stored(workloads, 2), Uses: wrote(workloads, 2, "kubectl")},
			Checked{Inventory: &Inventory{}}, []Finding{{Refused, "Workload scheduling.k8s.io/v1alpha1", nil, 2,
				"v2 does not serve this resource: the objects cannot be reached any more", "Replace the objects by those of another API, and delete them, before the upgrade"}}},
		{"one without objects is not either", Inventory{Resources: []Resource{workloads}}, Checked{Inventory: &Inventory{}}, nil},
		{"another version of it is served", Inventory{Resources: []Resource{workloads}, Objects: stored(workloads, 2), Uses: wrote(workloads, 1, "helm", "kubectl")},
			Checked{Inventory: &Inventory{Resources: []Resource{newer}}}, []Finding{{Warning, "Workload scheduling.k8s.io/v1alpha1", nil, 1,
				"v2 does not serve this version, in which helm, kubectl wrote the objects", "Use v1alpha2 in manifests and clients before the upgrade"}}},
		{"nobody uses the version that goes", Inventory{Resources: []Resource{workloads}, Objects: stored(workloads, 2)},
			Checked{Inventory: &Inventory{Resources: []Resource{newer}}}, nil},
		{"the objects cannot be read", Inventory{Resources: []Resource{workloads}, Objects: stored(workloads, 2)},
			Checked{Inventory: &Inventory{Resources: []Resource{newer}}, Responses: []Response{{Resource: newer, Err: errors.New("no kind\n\"Workload\"")}}},
			[]Finding{{Refused, "Workload scheduling.k8s.io/v1alpha2", nil, 2, `the objects cannot be listed: no kind "Workload"`,
				"Replace the objects by those of another version or API, and delete them, before the upgrade"}}},
		{"a webhook that is not there converts", Inventory{Resources: []Resource{crontabs}, Objects: stored(crontabs, 2)},
			Checked{Inventory: &Inventory{Resources: []Resource{crontabs}, CRDs: map[string]CRD{"crontabs.stable.example.com": {Converted: true}}},
				Responses: []Response{{Resource: crontabs, Err: errors.New("conversion webhook failed")}}},
			[]Finding{{Unchecked, "CronTab stable.example.com/v1", nil, 2, "the webhook that converts between versions does not run in the fork",
				"Make sure that the webhook supports v2"}}},
		{"a version is deprecated", Inventory{Resources: []Resource{services}, Objects: stored(services, 9), Uses: wrote(services, 2, "helm")},
			Checked{Inventory: &Inventory{Resources: []Resource{services}}, Responses: []Response{{Resource: services, Warnings: []string{"v1 Service is deprecated"}}}},
			[]Finding{{Warning, "Service v1", nil, 2, "v1 Service is deprecated; the objects were written by helm", "Change manifests and clients"}}},
		{"nobody uses the deprecated version", Inventory{Resources: []Resource{services}, Objects: stored(services, 9)},
			Checked{Inventory: &Inventory{Resources: []Resource{services}}, Responses: []Response{{Resource: services, Warnings: []string{"v1 Service is deprecated"}}}}, nil},
		{"objects are refused and warned of", Inventory{Resources: []Resource{services}}, Checked{Inventory: &Inventory{Resources: []Resource{services}}, Responses: []Response{
			{Resource: services, Object: "default/web", Err: refusal, Warnings: []string{"spec.externalIPs is deprecated"}},
			{Resource: services, Object: "default/api", Warnings: []string{"spec.externalIPs is deprecated"}},
			{Resource: services, Object: "default/busy", Err: conflict},
		}}, []Finding{
			{Refused, "Service v1", []string{"default/web"}, 1, "spec.ports: Required value", "Change the object so that v2 accepts it, before the upgrade"},
			{Warning, "Service v1", []string{"default/api", "default/web"}, 2, "spec.externalIPs is deprecated", "Change the object, and the manifest that it is created from"},
			{Unchecked, "Service v1", []string{"default/busy"}, 1, "controllers changed it all the time", "Try again"},
		}},
		{"webhooks, APIs of programs and versions that are not served", Inventory{
			Objects:    stored(services, 3),
			Webhooks:   []Webhook{{"ValidatingWebhookConfiguration", "policy", "services.example.com", newRules("", "services"), true}},
			Aggregated: map[schema.GroupVersion]bool{{Group: "metrics.k8s.io", Version: "v1beta1"}: true},
			CRDs:       map[string]CRD{"crontabs.stable.example.com": {StoredOnly: []string{"v1alpha1"}}, "foos.example.com": {}},
		}, Checked{Inventory: &Inventory{}}, []Finding{
			{Warning, "CustomResourceDefinition", []string{"crontabs.stable.example.com"}, 1, "objects may be stored in v1alpha1, which is not served",
				"Write all objects again, and remove the version from status.storedVersions"},
			{Unchecked, "APIService", []string{"v1beta1.metrics.k8s.io"}, 1, "its program does not run in the fork", "Make sure that its program supports the new version"},
			{Unchecked, "ValidatingWebhookConfiguration", []string{"policy"}, 3, "the webhook services.example.com may be called for 3 objects, and does not run in the fork",
				"Make sure that its program supports the new version. While it does not respond, these objects cannot be written: failurePolicy is Fail"},
		}},
	} {
		test.after.Version = "v2"
		got := Compare(&test.before, &test.after)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
		if want := len(test.want) > 0 && test.want[0].Result == Refused; IsRefused(got) != want {
			t.Errorf("%s: IsRefused is %v", test.name, !want)
		}
	}
}

func newRules(group, resource string, operations ...admissionv1.OperationType) []admissionv1.RuleWithOperations {
	if operations == nil {
		operations = []admissionv1.OperationType{admissionv1.Update}
	}
	return []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{APIGroups: []string{group}, Resources: []string{resource}}}}
}

func TestConcerns(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		name  string
		rules []admissionv1.RuleWithOperations
		want  bool
	}{
		{"this resource", newRules("", "pods"), true},
		{"all", newRules("*", "*", admissionv1.OperationAll), true},
		{"all with subresources", newRules("*", "*/*"), true},
		{"another group", newRules("apps", "pods"), false},
		{"another resource", newRules("", "services"), false},
		{"a subresource", newRules("", "pods/eviction", admissionv1.Create), false},
		{"deletions", newRules("", "pods", admissionv1.Delete), false},
		{"no rules", nil, false},
	} {
		if got := (Webhook{Rules: test.rules}).concerns(pods); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestStoredResources(t *testing.T) {
	verbs := []string{"get", "list", "update"}
	groups := []*metav1.APIGroup{
		{Name: "", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}, PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"}},
		{Name: "batch", Versions: []metav1.GroupVersionForDiscovery{{Version: "v2"}, {Version: "v1"}}, PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v2"}},
		{Name: "metrics.k8s.io", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1beta1"}}},
	}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}, {Name: "pods/status", Verbs: verbs}, {Name: "events", Verbs: verbs},
			{Name: "bindings", Verbs: []string{"create"}},
		}},
		{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Verbs: verbs}, {Name: "old", Kind: "Old", Verbs: []string{"list"}}}},
		{GroupVersion: "batch/v2", APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Verbs: verbs}}},
		{GroupVersion: "metrics.k8s.io/v1beta1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Verbs: verbs}}},
	}
	got := storedResources(groups, lists, map[schema.GroupVersion]bool{{Group: "metrics.k8s.io", Version: "v1beta1"}: true})
	pods, jobs, newJobs, old := newResource("", "v1", "pods", "Pod"), newResource("batch", "v1", "jobs", "Job"), newResource("batch", "v2", "jobs", "Job"), newResource("batch", "v1", "old", "Old")
	pods.Namespaced, jobs.Preferred, old.Updatable = true, false, false
	if diff := cmp.Diff([]Resource{pods, jobs, old, newJobs}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWriters(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{
		{Manager: "helm", APIVersion: "batch/v1beta1"}, {Manager: "kube-controller-manager", APIVersion: "batch/v1"},
		{Manager: "autoscaler", APIVersion: "autoscaling/v1", Subresource: "scale"}, {Manager: "kubectl", APIVersion: "batch/v1"}, {Manager: "damaged", APIVersion: "a/b/c"},
	}
	got := writers(newResource("batch", "v1", "cronjobs", "CronJob"), fields)
	want := map[schema.GroupVersionResource][]string{
		{Group: "batch", Version: "v1beta1", Resource: "cronjobs"}: {"helm"}, {Group: "batch", Version: "v1", Resource: "cronjobs"}: {"kubectl"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNewCRD(t *testing.T) {
	got := newCRD(map[string]any{
		"metadata": map[string]any{"name": "crontabs.stable.example.com"},
		"spec": map[string]any{
			"conversion": map[string]any{"strategy": "Webhook"},
			"versions":   []any{map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v1alpha1", "served": false}},
		},
		"status": map[string]any{"storedVersions": []any{"v1alpha1", "v1"}},
	})
	if diff := cmp.Diff(CRD{Name: "crontabs.stable.example.com", Converted: true, StoredOnly: []string{"v1alpha1"}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReason(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no"))
	generic := apierrors.NewGenericServerResponse(http.StatusInternalServerError, "put", schema.GroupResource{}, "", "boom", 0, true)
	for want, err := range map[string]error{"no": forbidden, "a b": errors.New("a\n b"), generic.ErrStatus.Message: generic} {
		if got := reason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
