package preflight

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Requirement has the permissions that one part of the manager needs.
type Requirement struct {
	// Owner is the controller, or "leader election".
	Owner string
	// Role is the name of the Role or ClusterRole that grants the permissions.
	Role string
	// Rules are the permissions.
	Rules []rbacv1.PolicyRule
	// Namespaces are those in which they are needed; empty means the whole cluster.
	Namespaces []string
}

// Permission is one verb on one resource or path.
type Permission struct {
	Verb, Group, Resource, Subresource string
	// Name limits it to one object; empty means all objects.
	Name string
	// Path replaces Group and Resource for a path of the API server, such as /metrics.
	Path string
	// Namespace limits it to one; empty means the whole cluster.
	Namespace string
}

// isClusterScoped reports whether a resource has no namespace.
type isClusterScoped func(schema.GroupResource) bool

// Permissions returns the individual permissions of r, sorted, without duplicates.
func (r Requirement) Permissions(clusterScoped isClusterScoped) []Permission {
	var all []Permission
	for _, rule := range r.Rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, Permission{Verb: verb, Path: path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range orEmpty(rule.ResourceNames) {
						all = append(all, r.inScope(Permission{Verb: verb, Group: group, Resource: resource, Name: name}, clusterScoped)...)
					}
				}
			}
		}
	}
	slices.SortFunc(all, comparePermissions)
	return slices.Compact(all)
}

// inScope returns p once for each namespace in which it is needed.
func (r Requirement) inScope(p Permission, clusterScoped isClusterScoped) []Permission {
	p.Resource, p.Subresource, _ = strings.Cut(p.Resource, "/")
	if clusterScoped(schema.GroupResource{Group: p.Group, Resource: p.Resource}) {
		return []Permission{p}
	}
	var all []Permission
	for _, namespace := range orEmpty(r.Namespaces) {
		p.Namespace = namespace
		all = append(all, p)
	}
	return all
}

// rulesFor returns the rules of r that a Role can grant (clusterWide false), or those that only a ClusterRole
// can grant.
func (r Requirement) rulesFor(clusterWide bool, clusterScoped isClusterScoped) []rbacv1.PolicyRule {
	if len(r.Namespaces) == 0 {
		if clusterWide {
			return r.Rules
		}
		return nil
	}
	var rules []rbacv1.PolicyRule
	for _, rule := range r.Rules {
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

// orEmpty returns list, or a list of one empty string if it is empty.
func orEmpty(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// String returns p in words, such as "get pods in namespace default".
func (p Permission) String() string {
	text := p.Verb + " " + p.target()
	if p.Namespace != "" {
		text += " in namespace " + p.Namespace
	}
	return text
}

// target returns the resource of p as kubectl writes it: deployments.apps, foos.x/status.
func (p Permission) target() string {
	if p.Path != "" {
		return p.Path
	}
	target := schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()
	if p.Subresource != "" {
		target += "/" + p.Subresource
	}
	if p.Name != "" {
		target += " " + strconv.Quote(p.Name)
	}
	return target
}

func comparePermissions(a, b Permission) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Path, b.Path),
		strings.Compare(a.Group, b.Group),
		strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Subresource, b.Subresource),
		strings.Compare(a.Name, b.Name),
		strings.Compare(a.Verb, b.Verb),
	)
}
