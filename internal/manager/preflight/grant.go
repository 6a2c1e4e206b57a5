package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/crds"
)

// shortage is a requirement with missing permissions.
type shortage struct {
	Requirement
	missing []Permission
}

// Roles returns the ClusterRoles and Roles that grant the requirements, with their bindings to the user if that is not empty; a
// service account is system:serviceaccount:NAMESPACE:NAME. If home is not nil, that namespace comes first.
func Roles(needed []Requirement, home *corev1.Namespace, user string) ([]runtime.Object, error) {
	scopes, err := knownScopes()
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, r := range needed {
		namespaces := orEmpty(r.Namespaces)
		if len(r.Namespaces) > 0 {
			namespaces = append([]string{""}, r.Namespaces...)
		}
		for _, namespace := range namespaces {
			if len(r.rulesFor(namespace == "", scopes)) == 0 {
				continue
			}
			both := r.grant(namespace, user, scopes)
			if user == "" {
				both = both[:1]
			}
			objects = append(objects, both...)
		}
	}
	return withHome(home, objects), nil
}

// knownScopes returns the scopes of all resources that the controllers use, without querying a server.
func knownScopes() (isClusterScoped, error) {
	without := []schema.GroupResource{{Resource: "namespaces"}}
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	for _, definition := range definitions {
		if definition.Spec.Scope == apiextensionsv1.ClusterScoped {
			without = append(without, schema.GroupResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural})
		}
	}
	return func(resource schema.GroupResource) bool { return slices.Contains(without, resource) }, nil
}

// grants returns the roles that grant the missing permissions, and their bindings to the user.
//
// Each role has all permissions of its owner in that scope, not only the missing ones, and the name of each
// binding contains the user. Manifests for other controllers or users therefore never revoke permissions of
// earlier ones.
func grants(shortages []shortage, user string, clusterScoped isClusterScoped) []runtime.Object {
	var objects []runtime.Object
	for _, s := range shortages {
		namespaces := map[string]bool{}
		for _, p := range s.missing {
			namespaces[p.Namespace] = true
		}
		for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
			objects = append(objects, s.grant(namespace, user, clusterScoped)...)
		}
	}
	return objects
}

// grant returns a role with the permissions of r in namespace (empty: the whole cluster), and its binding to
// user.
func (r Requirement) grant(namespace, user string, clusterScoped isClusterScoped) []runtime.Object {
	name, clusterWide := r.Role, namespace == ""
	if clusterWide && len(r.Namespaces) > 0 {
		// The name without a suffix is for managers of all namespaces.
		name += "-cluster"
	}
	return roleAndBinding(name, namespace, r.rulesFor(clusterWide, clusterScoped), user)
}

// roleAndBinding returns a ClusterRole and its binding, or with a namespace a Role and its binding.
func roleAndBinding(name, namespace string, rules []rbacv1.PolicyRule, user string) []runtime.Object {
	labels := map[string]string{"app.kubernetes.io/name": "keelson"}
	role := metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}
	binding := metav1.ObjectMeta{Name: bindingName(name, user), Namespace: namespace, Labels: labels}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Name: name}
	if namespace == "" {
		ref.Kind = "ClusterRole"
		return []runtime.Object{
			&rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: role, Rules: rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: binding,
				RoleRef: ref, Subjects: []rbacv1.Subject{subjectOf(user)},
			},
		}
	}
	ref.Kind = "Role"
	return []runtime.Object{
		&rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: role, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: rbacType("RoleBinding"), ObjectMeta: binding,
			RoleRef: ref, Subjects: []rbacv1.Subject{subjectOf(user)},
		},
	}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// subjectOf returns the user as the subject of a binding.
func subjectOf(user string) rbacv1.Subject {
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	if namespace, name, ok := strings.Cut(account, ":"); isAccount && ok {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// bindingName replaces the two characters that user names of identity providers contain but RBAC names must
// not.
func bindingName(role, user string) string {
	return role + ":" + strings.NewReplacer("/", "-", "%", "-").Replace(user)
}

// manifest renders objects as YAML documents for kubectl apply.
func manifest(objects []runtime.Object) (string, error) {
	var text strings.Builder
	for i, object := range objects {
		raw, err := yaml.Marshal(object)
		if err != nil {
			return "", fmt.Errorf("render %T as YAML: %w", object, err)
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		text.Write(raw)
	}
	return text.String(), nil
}
