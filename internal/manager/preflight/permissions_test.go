package preflight

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// onlyNodes says that nodes have no namespace and all else has.
func onlyNodes(resource schema.GroupResource) bool {
	return resource == schema.GroupResource{Resource: "nodes"}
}

func TestPermissions(t *testing.T) {
	tests := []struct {
		name        string
		requirement Requirement
		want        []Permission
	}{
		{
			name: "every verb on every resource of every group",
			requirement: Requirement{Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{"a", "b"}, Resources: []string{"foos", "foos/status"}, Verbs: []string{"get", "patch"},
			}}},
			want: []Permission{
				{Verb: "get", Group: "a", Resource: "foos"},
				{Verb: "patch", Group: "a", Resource: "foos"},
				{Verb: "get", Group: "a", Resource: "foos", Subresource: "status"},
				{Verb: "patch", Group: "a", Resource: "foos", Subresource: "status"},
				{Verb: "get", Group: "b", Resource: "foos"},
				{Verb: "patch", Group: "b", Resource: "foos"},
				{Verb: "get", Group: "b", Resource: "foos", Subresource: "status"},
				{Verb: "patch", Group: "b", Resource: "foos", Subresource: "status"},
			},
		},
		{
			name: "in each namespace, what has none in the cluster",
			requirement: Requirement{
				Rules: []rbacv1.PolicyRule{{
					APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"watch"},
				}},
				Namespaces: []string{"one", "two"},
			},
			want: []Permission{
				{Verb: "watch", Resource: "nodes"},
				{Verb: "watch", Resource: "pods", Namespace: "one"},
				{Verb: "watch", Resource: "pods", Namespace: "two"},
			},
		},
		{
			name: "said twice, asked once",
			requirement: Requirement{Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
			}},
			want: []Permission{{Verb: "get", Resource: "pods"}, {Verb: "list", Resource: "pods"}},
		},
		{
			name: "single objects and paths",
			requirement: Requirement{Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{"x", "y"}},
				{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
			}},
			want: []Permission{
				{Verb: "get", Resource: "secrets", Name: "x"},
				{Verb: "get", Resource: "secrets", Name: "y"},
				{Verb: "get", Path: "/metrics"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.requirement.Permissions(onlyNodes)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRulesFor(t *testing.T) {
	mixed := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "nodes", "pods/status"}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}
	tests := []struct {
		name        string
		namespaces  []string
		clusterWide bool
		want        []rbacv1.PolicyRule
	}{
		{name: "the whole cluster, ClusterRole", clusterWide: true, want: mixed},
		{name: "the whole cluster, Role", clusterWide: false, want: nil},
		{
			name: "a namespace, ClusterRole", namespaces: []string{"one"}, clusterWide: true,
			want: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
				mixed[1],
			},
		},
		{
			name: "a namespace, Role", namespaces: []string{"one"}, clusterWide: false,
			want: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"get"}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Requirement{Rules: mixed, Namespaces: tt.namespaces}.rulesFor(tt.clusterWide, onlyNodes)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rulesFor (-want +got):\n%s", diff)
			}
		})
	}
}
