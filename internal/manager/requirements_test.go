package manager

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/manager/preflight"
	"github.com/keelson-dev/keelson/internal/testing/env"
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
	asked := map[preflight.Permission]bool{}
	for _, r := range needed {
		for _, p := range r.Permissions(nothing) {
			asked[p] = true
		}
	}
	granted := map[preflight.Permission]bool{}
	for _, r := range []preflight.Requirement{{Rules: clusterRole.Rules}, {Rules: role.Rules, Namespaces: []string{rbac.Home}}} {
		for _, p := range r.Permissions(nothing) {
			granted[p] = true
		}
	}
	// What is granted everywhere is granted at home.
	maps.DeleteFunc(asked, func(p preflight.Permission, _ bool) bool {
		p.Namespace = ""
		return granted[p] && !asked[p]
	})
	if diff := cmp.Diff(asked, granted, cmpopts.IgnoreMapEntries(func(p preflight.Permission, _ bool) bool {
		everywhere := p
		everywhere.Namespace = ""
		return p != everywhere && asked[everywhere]
	})); diff != "" {
		t.Errorf("(-asked for +granted):\n%s", diff)
	}
}

// Only a manager with the driver pod needs its permissions.
func TestTheDriverPodHasPermissionsOfItsOwn(t *testing.T) {
	for driver, want := range map[string]bool{"pod": true, "qemu": false} {
		for _, names := range [][]string{{"virtualmachine"}, {"foo"}} {
			o := NewOptions()
			o.LeaderElection.Enabled = ptr.To(true)
			o.Machines.Drivers, o.Controllers, o.Namespaces = []string{"fake", driver}, names, []string{"a"}
			if err := o.Complete(); err != nil {
				t.Fatal(err)
			}
			selected, err := selectControllers(controllers, o.Controllers)
			if err != nil {
				t.Fatal(err)
			}
			needed, err := requirements(o, selected)
			if err != nil {
				t.Fatal(err)
			}
			for role, namespace := range map[string]string{"keelson-driver-pod": "a", "keelson-driver-pod-keelson-system": rbac.Home} {
				found := slices.ContainsFunc(needed, func(r preflight.Requirement) bool {
					return r.Role == role && len(r.Rules) > 0 && slices.Equal(r.Namespaces, []string{namespace})
				})
				if want := want && names[0] == "virtualmachine"; found != want {
					t.Errorf("driver %s, controllers %q: permissions %s: %t, want %t", driver, names, role, found, want)
				}
			}
		}
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

// requirementsOf returns the permissions that a manager with these options and no controllers needs, as texts.
func requirementsOf(t *testing.T, o Options) []string {
	t.Helper()
	needed, err := requirements(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range needed {
		for _, p := range r.Permissions(func(resource schema.GroupResource) bool { return resource.Resource == "namespaces" }) {
			all = append(all, p.String())
		}
	}
	return all
}

// A manager outside of a Pod, without any namespace in its options, keeps its Lease in keelson-system, which it makes. What has a
// namespace that the user chose needs nothing elsewhere.
func TestRequirementsOfTheLease(t *testing.T) {
	o := newTestOptions(t, "default")
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.LockNamespace = ""
	if err := o.complete(""); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"create leases.coordination.k8s.io in namespace keelson-system",
		`get leases.coordination.k8s.io "keelson" in namespace keelson-system`,
		`update leases.coordination.k8s.io "keelson" in namespace keelson-system`,
		`get namespaces "keelson-system"`,
	}
	if diff := cmp.Diff(want, requirementsOf(t, o)); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	needed, err := requirements(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if home := managerNamespace(o, needed); home == nil || home.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("the namespace to create is %v", home)
	}

	o = newTestOptions(t, "team")
	o.LeaderElection.Enabled = ptr.To(true)
	if err := o.complete(""); err != nil {
		t.Fatal(err)
	}
	want = []string{
		"create leases.coordination.k8s.io in namespace team",
		`get leases.coordination.k8s.io "keelson" in namespace team`,
		`update leases.coordination.k8s.io "keelson" in namespace team`,
	}
	if diff := cmp.Diff(want, requirementsOf(t, o)); diff != "" {
		t.Errorf("with a chosen namespace (-want +got):\n%s", diff)
	}
}

// The preflight of a manager outside of a Pod creates its namespace, closed to Pods that could do harm, and leaves one that exists.
func TestTheManagerCreatesItsNamespace(t *testing.T) {
	config := env.Own(t)
	controller := idle("homeless")
	controller.Resources = nil // an API server of its own has no definitions
	o := newTestOptions(t, "default")
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.LockNamespace = ""
	if err := o.complete(""); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"creates it", "finds it"} {
		if err := checkAPI(t.Context(), config, o, []Controller{controller}); err != nil {
			t.Fatalf("a preflight that %s: %v", what, err)
		}
	}
	var namespace corev1.Namespace
	if err := newTestClient(t, config).Get(t.Context(), client.ObjectKey{Name: rbac.Home}, &namespace); err != nil {
		t.Fatal(err)
	}
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("pod security: got %q, want restricted", got)
	}
}
