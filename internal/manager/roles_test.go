package manager

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/config/rbac"
)

// The roles of an installation grant what the preflight of a manager with all controllers
// asks for, and nothing else.
func TestTheInstalledRolesAreWhatThePreflightAsksFor(t *testing.T) {
	clusterRole, role, err := rbac.Manager()
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.LockNamespace, o.SecretNamespace = rbac.Home, rbac.Home
	o.MetricsAddress = ":8443"
	o.Webhook.Address, o.Webhook.ServiceNamespace = ":9443", rbac.Home
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	needed, err := requirements(o, controllers)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(schema.GroupResource) bool { return false }
	asked := map[permission]bool{}
	for _, r := range needed {
		for _, p := range r.permissions(nothing) {
			asked[p] = true
		}
	}
	granted := map[permission]bool{}
	for _, r := range []requirement{{rules: clusterRole.Rules}, {rules: role.Rules, namespaces: []string{rbac.Home}}} {
		for _, p := range r.permissions(nothing) {
			granted[p] = true
		}
	}
	// What is granted everywhere is granted at home.
	maps.DeleteFunc(asked, func(p permission, _ bool) bool {
		p.namespace = ""
		return granted[p] && !asked[p]
	})
	if diff := cmp.Diff(asked, granted, cmp.AllowUnexported(permission{}), cmpopts.IgnoreMapEntries(func(p permission, _ bool) bool {
		everywhere := p
		everywhere.namespace = ""
		return p != everywhere && asked[everywhere]
	})); diff != "" {
		t.Errorf("(-asked for +granted):\n%s", diff)
	}
}
