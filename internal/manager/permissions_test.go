package manager

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
		requirement requirement
		want        []permission
	}{
		{
			name: "every verb on every resource of every group",
			requirement: requirement{rules: []rbacv1.PolicyRule{{
				APIGroups: []string{"a", "b"}, Resources: []string{"foos", "foos/status"}, Verbs: []string{"get", "patch"},
			}}},
			want: []permission{
				{verb: "get", group: "a", resource: "foos"},
				{verb: "patch", group: "a", resource: "foos"},
				{verb: "get", group: "a", resource: "foos", subresource: "status"},
				{verb: "patch", group: "a", resource: "foos", subresource: "status"},
				{verb: "get", group: "b", resource: "foos"},
				{verb: "patch", group: "b", resource: "foos"},
				{verb: "get", group: "b", resource: "foos", subresource: "status"},
				{verb: "patch", group: "b", resource: "foos", subresource: "status"},
			},
		},
		{
			name: "in each namespace, what has none in the cluster",
			requirement: requirement{
				rules: []rbacv1.PolicyRule{{
					APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"watch"},
				}},
				namespaces: []string{"one", "two"},
			},
			want: []permission{
				{verb: "watch", resource: "nodes"},
				{verb: "watch", resource: "pods", namespace: "one"},
				{verb: "watch", resource: "pods", namespace: "two"},
			},
		},
		{
			name: "said twice, asked once",
			requirement: requirement{rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
			}},
			want: []permission{{verb: "get", resource: "pods"}, {verb: "list", resource: "pods"}},
		},
		{
			name: "single objects and paths",
			requirement: requirement{rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{"x", "y"}},
				{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
			}},
			want: []permission{
				{verb: "get", resource: "secrets", name: "x"},
				{verb: "get", resource: "secrets", name: "y"},
				{verb: "get", path: "/metrics"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.requirement.permissions(onlyNodes)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(permission{})); diff != "" {
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
			got := requirement{rules: mixed, namespaces: tt.namespaces}.rulesFor(tt.clusterWide, onlyNodes)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rulesFor (-want +got):\n%s", diff)
			}
		})
	}
}
