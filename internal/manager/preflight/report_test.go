package preflight

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestPreflightErrorText compares what a person reads with testdata/NAME.txt. After a
// wanted change: go test ./internal/manager/preflight -run PreflightErrorText -update
func TestPreflightErrorText(t *testing.T) {
	foo := []rbacv1.PolicyRule{
		{APIGroups: []string{"samplecontroller.k8s.io"}, Resources: []string{"foos"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"samplecontroller.k8s.io"}, Resources: []string{"foos/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list", "watch"}},
	}
	lease := Requirement{
		Owner: "leader election", Role: "keelson-lease-keelson", Namespaces: []string{"keelson"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			ResourceNames: []string{"keelson"}, Verbs: []string{"get", "update"},
		}},
	}
	everywhere := Requirement{Owner: "foo", Role: "keelson-foo", Rules: foo}
	inTwo := Requirement{Owner: "foo", Role: "keelson-foo", Rules: foo, Namespaces: []string{"one", "two"}}
	unservedFoo := []Resource{{
		Controller:           "foo",
		GroupVersionResource: schema.GroupVersionResource{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"},
	}}
	all := func(r Requirement) shortage { return shortage{Requirement: r, missing: r.Permissions(onlyNodes)} }
	account := "system:serviceaccount:keelson:manager"

	tests := []struct {
		name      string // and the golden file
		user      string
		unserved  []Resource
		shortages []shortage
		grantedIn string
	}{
		{name: "nothing-is-granted", user: account, shortages: []shortage{all(everywhere), all(lease)}},
		{name: "namespaces", user: "alice", shortages: []shortage{all(inTwo)}},
		{
			name: "a-role-where-a-cluster-role-is-needed", user: "https://idp.example/alice%1", grantedIn: "keelson",
			shortages: []shortage{{Requirement: everywhere, missing: []Permission{
				{Verb: "list", Group: "samplecontroller.k8s.io", Resource: "foos"},
				{Verb: "watch", Group: "samplecontroller.k8s.io", Resource: "foos"},
			}}},
		},
		{name: "nothing-is-served", unserved: unservedFoo},
		{
			name: "both", user: "alice", unserved: unservedFoo,
			shortages: []shortage{{Requirement: everywhere, missing: []Permission{{Verb: "watch", Resource: "pods"}}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := &Error{
				server: "https://api.example:6443", user: tt.user,
				unserved: tt.unserved, shortages: tt.shortages, grantedIn: tt.grantedIn,
			}
			if len(tt.shortages) > 0 {
				var renderErr error
				err.Manifest, renderErr = manifest(grants(tt.shortages, err.user, onlyNodes))
				if renderErr != nil {
					t.Fatalf("manifest: %v", renderErr)
				}
			}
			got := err.Error() + "\n"
			golden := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}
