package manager

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
// wanted change: go test ./internal/manager -run PreflightErrorText -update
func TestPreflightErrorText(t *testing.T) {
	foo := []rbacv1.PolicyRule{
		{APIGroups: []string{"samplecontroller.k8s.io"}, Resources: []string{"foos"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"samplecontroller.k8s.io"}, Resources: []string{"foos/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list", "watch"}},
	}
	lease := requirement{
		owner: "leader election", role: "keelson-lease-keelson", namespaces: []string{"keelson"},
		rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			ResourceNames: []string{"keelson"}, Verbs: []string{"get", "update"},
		}},
	}
	everywhere := requirement{owner: "foo", role: "keelson-foo", rules: foo}
	inTwo := requirement{owner: "foo", role: "keelson-foo", rules: foo, namespaces: []string{"one", "two"}}
	unservedFoo := []unserved{{
		controller: "foo",
		resource:   schema.GroupVersionResource{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"},
	}}
	all := func(r requirement) shortage { return shortage{requirement: r, missing: r.permissions(onlyNodes)} }
	account := "system:serviceaccount:keelson:manager"

	tests := []struct {
		name      string // and the golden file
		user      string
		unserved  []unserved
		shortages []shortage
		grantedIn string
	}{
		{name: "nothing-is-granted", user: account, shortages: []shortage{all(everywhere), all(lease)}},
		{name: "namespaces", user: "alice", shortages: []shortage{all(inTwo)}},
		{
			name: "a-role-where-a-cluster-role-is-needed", user: "https://idp.example/alice%1", grantedIn: "keelson",
			shortages: []shortage{{requirement: everywhere, missing: []permission{
				{verb: "list", group: "samplecontroller.k8s.io", resource: "foos"},
				{verb: "watch", group: "samplecontroller.k8s.io", resource: "foos"},
			}}},
		},
		{name: "nothing-is-served", unserved: unservedFoo},
		{
			name: "both", user: "alice", unserved: unservedFoo,
			shortages: []shortage{{requirement: everywhere, missing: []permission{{verb: "watch", resource: "pods"}}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := &PreflightError{
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
