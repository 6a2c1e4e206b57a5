package manager

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config/rbac"
)

// requirement is what one part of the manager needs from the API.
type requirement struct {
	// owner is the controller, or "leader election".
	owner string
	// role is the name of the Role or ClusterRole that grants it.
	role string
	// rules are the permissions.
	rules []rbacv1.PolicyRule
	// namespaces is where; empty means the whole cluster.
	namespaces []string
}

// permission is one thing that a user may or may not do.
type permission struct {
	verb, group, resource, subresource string
	// name limits it to one object; empty means all.
	name string
	// path is set instead of group and resource for what is no resource.
	path string
	// namespace limits it to one; empty means the whole cluster.
	namespace string
}

// isClusterScoped tells resources without a namespace from the others.
type isClusterScoped func(schema.GroupResource) bool

// requirements returns what the selected controllers and the manager itself need.
func requirements(o Options, selected []Controller) ([]requirement, error) {
	var all []requirement
	for _, c := range selected {
		rules, err := c.Permissions()
		if err != nil {
			return nil, fmt.Errorf("read the permissions that controller %s needs: %w", c.Name, err)
		}
		all = append(all, requirement{
			owner: c.Name, role: "keelson-" + c.Name, rules: rules, namespaces: o.Namespaces,
		})
		if c.AtHome != nil {
			rules, err := c.AtHome()
			if err != nil {
				return nil, fmt.Errorf("read the permissions that controller %s needs in one namespace: %w", c.Name, err)
			}
			namespace := o.SecretNamespace
			all = append(all, requirement{
				owner: c.Name + " in its namespace", role: "keelson-" + c.Name + "-" + namespace, rules: rules, namespaces: []string{namespace},
			})
		}
	}
	if election := o.LeaderElection; *election.Enabled {
		leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
		// A rule cannot limit create to a name: the object has none yet when the
		// request is checked.
		create, change := leases, leases
		create.Verbs = []string{"create"}
		change.Verbs = []string{"get", "update"}
		change.ResourceNames = []string{election.LockName}
		all = append(all, requirement{
			owner: "leader election", role: "keelson-lease-" + election.LockName,
			rules: []rbacv1.PolicyRule{create, change}, namespaces: []string{election.LockNamespace},
		})
		if o.former.lease != "" {
			hold := *change.DeepCopy()
			hold.Verbs = []string{"get", "update"}
			all = append(all, requirement{
				owner: "leader election with earlier versions", role: "keelson-lease-" + election.LockName,
				rules: []rbacv1.PolicyRule{hold}, namespaces: []string{o.former.lease},
			})
		}
	}
	if isOn(o.MetricsAddress) && o.Serving.isSecure(o.MetricsAddress) {
		all = append(all, requirement{owner: "secure metrics", role: "keelson-metrics-auth", rules: reviewRules()})
	}
	all = append(all, o.Webhook.requirements()...)
	if needsHome(o, all) {
		get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{rbac.Home}, Verbs: []string{"get"}}
		all = append(all, requirement{owner: "manager", role: "keelson-namespace", rules: []rbacv1.PolicyRule{get}})
	}
	return all, nil
}

// needsHome reports whether the manager keeps something in the namespace keelson-system because no option and no Pod says where
// else. It makes that namespace itself if it may.
func needsHome(o Options, needed []requirement) bool {
	return o.former != (former{}) && slices.ContainsFunc(needed, func(r requirement) bool {
		return slices.Equal(r.namespaces, []string{rbac.Home})
	})
}

// permissions returns the single permissions of r, sorted, none twice.
func (r requirement) permissions(clusterScoped isClusterScoped) []permission {
	var all []permission
	for _, rule := range r.rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, permission{verb: verb, path: path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range orEmpty(rule.ResourceNames) {
						all = append(all, r.inScope(permission{verb: verb, group: group, resource: resource, name: name}, clusterScoped)...)
					}
				}
			}
		}
	}
	slices.SortFunc(all, comparePermissions)
	return slices.Compact(all)
}

// inScope returns p once for every namespace in which it is needed.
func (r requirement) inScope(p permission, clusterScoped isClusterScoped) []permission {
	p.resource, p.subresource, _ = strings.Cut(p.resource, "/")
	if clusterScoped(schema.GroupResource{Group: p.group, Resource: p.resource}) {
		return []permission{p}
	}
	var all []permission
	for _, namespace := range orEmpty(r.namespaces) {
		p.namespace = namespace
		all = append(all, p)
	}
	return all
}

// rulesFor returns the part of the rules of r that a Role in a namespace can grant
// (clusterWide false), or the part that only a ClusterRole can.
func (r requirement) rulesFor(clusterWide bool, clusterScoped isClusterScoped) []rbacv1.PolicyRule {
	if len(r.namespaces) == 0 {
		if clusterWide {
			return r.rules
		}
		return nil
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range r.rules {
		part := *rule.DeepCopy()
		part.Resources = slices.DeleteFunc(part.Resources, func(resource string) bool {
			resource, _, _ = strings.Cut(resource, "/")
			return clusterWide != slices.ContainsFunc(rule.APIGroups, func(group string) bool {
				return clusterScoped(schema.GroupResource{Group: group, Resource: resource})
			})
		})
		if !clusterWide {
			part.NonResourceURLs = nil
		}
		if len(part.Resources) > 0 || len(part.NonResourceURLs) > 0 {
			rules = append(rules, part)
		}
	}
	return rules
}

// orEmpty returns list, or a list of one empty string in place of an empty one.
func orEmpty(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// target names what p is about, as kubectl does: deployments.apps, foos.x/status.
func (p permission) target() string {
	if p.path != "" {
		return p.path
	}
	target := schema.GroupResource{Group: p.group, Resource: p.resource}.String()
	if p.subresource != "" {
		target += "/" + p.subresource
	}
	if p.name != "" {
		target += " " + strconv.Quote(p.name)
	}
	return target
}

func comparePermissions(a, b permission) int {
	return cmp.Or(
		strings.Compare(a.namespace, b.namespace),
		strings.Compare(a.path, b.path),
		strings.Compare(a.group, b.group),
		strings.Compare(a.resource, b.resource),
		strings.Compare(a.subresource, b.subresource),
		strings.Compare(a.name, b.name),
		strings.Compare(a.verb, b.verb),
	)
}
