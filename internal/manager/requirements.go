package manager

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/driver/pod"
	"github.com/keelson-dev/keelson/internal/manager/preflight"
	"github.com/keelson-dev/keelson/internal/manager/serving"
)

func checkAPI(ctx context.Context, cfg *rest.Config, o Options, all []Controller) error {
	selected, err := selectControllers(all, o.Controllers)
	if err != nil {
		return err
	}
	needed, err := requirements(o, selected)
	if err != nil {
		return err
	}
	var resources []preflight.Resource
	for _, c := range selected {
		for _, resource := range c.Resources {
			resources = append(resources, preflight.Resource{Controller: c.Name, GroupVersionResource: resource})
		}
	}
	return preflight.Check(ctx, clientConfig(cfg), preflight.Options{
		Timeout: o.PreflightTimeout, Log: o.Logger, Resources: resources, Requirements: needed,
		LeaseNamespace: o.LeaderElection.LockNamespace, Home: managerNamespace(o, needed),
	})
}

// requirements returns the permissions that the selected controllers and the manager itself need.
func requirements(o Options, selected []Controller) ([]preflight.Requirement, error) {
	var all []preflight.Requirement
	for _, c := range selected {
		rules, err := c.Permissions()
		if err != nil {
			return nil, fmt.Errorf("read the permissions that controller %s needs: %w", c.Name, err)
		}
		all = append(all, preflight.Requirement{
			Owner: c.Name, Role: "keelson-" + c.Name, Rules: rules, Namespaces: o.Namespaces,
		})
		if c.NamespaceRules != nil {
			rules, err := c.NamespaceRules()
			if err != nil {
				return nil, fmt.Errorf("read the permissions that controller %s needs in one namespace: %w", c.Name, err)
			}
			namespace := o.SecretNamespace
			all = append(all, preflight.Requirement{
				Owner: c.Name + " in its namespace", Role: "keelson-" + c.Name + "-" + namespace, Rules: rules, Namespaces: []string{namespace},
			})
		}
	}
	if slices.ContainsFunc(selected, isVirtualMachine) && slices.Contains(o.Machines.Drivers, pod.Name) {
		rules, home, err := rbac.ForDriver(pod.Name)
		if err != nil {
			return nil, err
		}
		role := "keelson-driver-" + pod.Name
		all = append(all, preflight.Requirement{Owner: "driver " + pod.Name, Role: role, Rules: rules, Namespaces: o.Namespaces}, preflight.Requirement{
			Owner: "driver " + pod.Name + " in its namespace", Role: role + "-" + o.SecretNamespace, Rules: home, Namespaces: []string{o.SecretNamespace},
		})
	}
	if election := o.LeaderElection; *election.Enabled {
		leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
		// RBAC cannot limit create to a resource name.
		create, change := leases, leases
		create.Verbs = []string{"create"}
		change.Verbs = []string{"get", "update"}
		change.ResourceNames = []string{election.LockName}
		all = append(all, preflight.Requirement{
			Owner: "leader election", Role: "keelson-lease-" + election.LockName,
			Rules: []rbacv1.PolicyRule{create, change}, Namespaces: []string{election.LockNamespace},
		})
	}
	if serving.IsOn(o.MetricsAddress) && o.Serving.IsSecure(o.MetricsAddress) {
		all = append(all, preflight.Requirement{Owner: "secure metrics", Role: "keelson-metrics-auth", Rules: serving.ReviewRules()})
	}
	all = append(all, o.Webhook.requirements()...)
	forAccess, err := o.Access.requirements(selected)
	if err != nil {
		return nil, fmt.Errorf("read the permissions that the access API needs: %w", err)
	}
	all = append(all, forAccess...)
	if managerNamespace(o, all) != nil {
		get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{rbac.Home}, Verbs: []string{"get"}}
		all = append(all, preflight.Requirement{Owner: "manager", Role: "keelson-namespace", Rules: []rbacv1.PolicyRule{get}})
	}
	return all, nil
}

// managerNamespace returns the namespace keelson-system if the manager uses it, because neither an option nor the Pod determines
// another; otherwise nil.
func managerNamespace(o Options, needed []preflight.Requirement) *corev1.Namespace {
	inHome := func(r preflight.Requirement) bool { return slices.Equal(r.Namespaces, []string{rbac.Home}) }
	if !o.usesHome || !slices.ContainsFunc(needed, inHome) {
		return nil
	}
	return newManagerNamespace()
}

// newManagerNamespace returns the namespace for the Secrets and the Lease of a manager outside of a Pod, with the same labels as in
// config/manager.
func newManagerNamespace() *corev1.Namespace {
	const standard = "pod-security.kubernetes.io/"
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: rbac.Home, Labels: map[string]string{
			standard + "enforce": "restricted", standard + "audit": "restricted", standard + "warn": "restricted",
		}},
	}
}

// Roles returns the RBAC objects for a manager with these options: a ClusterRole for each selected controller
// (with Options.Namespaces, a Role in each namespace and a ClusterRole for cluster-scoped resources), one for
// secure metrics, and a Role for the Lease unless leader election is off. If the manager uses the namespace
// keelson-system, it comes first. If user is not empty, the result includes bindings to it; a service account
// is system:serviceaccount:NAMESPACE:NAME.
func Roles(o Options, user string) ([]runtime.Object, error) {
	if o.LeaderElection.Enabled == nil {
		o.LeaderElection.Enabled = ptr.To(true)
	}
	if o.Serving.Secure == nil {
		o.Serving.Secure = ptr.To(true)
	}
	if err := prepare(&o, controllers); err != nil {
		return nil, err
	}
	selected, err := selectControllers(controllers, o.Controllers)
	if err != nil {
		return nil, err
	}
	needed, err := requirements(o, selected)
	if err != nil {
		return nil, err
	}
	return preflight.Roles(needed, managerNamespace(o, needed), user)
}
