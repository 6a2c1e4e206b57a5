package rehearsal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

func TestWebhooks(t *testing.T) {
	rules := newRules("apps", "deployments", admissionv1.Create)
	client := fake.NewSimpleDynamicClient(scheme.Scheme,
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Webhooks: []admissionv1.ValidatingWebhook{
			{Name: "one.example.com", Rules: rules, FailurePolicy: ptr.To(admissionv1.Ignore)}, {Name: "two.example.com", FailurePolicy: ptr.To(admissionv1.Fail)},
		}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sidecar"}, Webhooks: []admissionv1.MutatingWebhook{
			{Name: "three.example.com", Rules: rules},
		}},
	)
	want := []Webhook{
		{"ValidatingWebhookConfiguration", "policy", "one.example.com", rules, false},
		{"ValidatingWebhookConfiguration", "policy", "two.example.com", nil, true},
		{"MutatingWebhookConfiguration", "sidecar", "three.example.com", rules, true},
	}
	got, err := findWebhooks(t.Context(), client)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if err := removeWebhooks(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	var deleted []string
	for _, action := range client.Actions() {
		if action.GetVerb() == "delete-collection" {
			deleted = append(deleted, action.GetResource().String())
		}
	}
	if diff := cmp.Diff([]string{
		"admissionregistration.k8s.io/v1, Resource=validatingwebhookconfigurations", "admissionregistration.k8s.io/v1, Resource=mutatingwebhookconfigurations",
	}, deleted); diff != "" {
		t.Errorf("deleted (-want +got)\n%s", diff)
	}
}
