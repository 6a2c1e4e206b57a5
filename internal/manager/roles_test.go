package manager

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/config/rbac"
)

// The roles of an installation grant what the preflight of a manager with the controllers of the Deployment asks for, and
// nothing else.
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
	o.Controllers = installedControllers(t)
	selected, err := selectControllers(controllers, o.Controllers)
	if err != nil {
		t.Fatal(err)
	}
	needed, err := requirements(o, selected)
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

// installedControllers returns the controllers that the Deployment of the installation runs.
func installedControllers(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(raw, &deployment); err != nil {
		t.Fatal(err)
	}
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		if names, ok := strings.CutPrefix(arg, "--controllers="); ok {
			return strings.Split(names, ",")
		}
	}
	t.Fatal("the Deployment has no flag --controllers")
	return nil
}
