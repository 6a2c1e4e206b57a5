package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Error lists what the API server lacks. Its text is for the administrator, and includes the manifest.
type Error struct {
	// Manifest grants the missing permissions or creates the missing namespace, as YAML for kubectl apply.
	// Empty if only resources are missing.
	Manifest string

	server string
	user   string
	// namespace does not exist and could not be created; reason is the error.
	namespace string
	reason    error
	unserved  []Resource
	shortages []shortage
	// grantedIn is a namespace that grants everything that is missing in the whole cluster; usually empty.
	grantedIn string
}

// Error implements error.
func (e *Error) Error() string {
	var text strings.Builder
	if e.namespace != "" {
		fmt.Fprintf(&text, "the API server %s has no namespace %s, in which the manager keeps its Lease and Secrets, and this user could not create it: %v.\n"+
			"\nAn administrator can create it with kubectl apply -f:\n\n%s", e.server, e.namespace, e.reason, e.Manifest)
	}
	if len(e.unserved) > 0 {
		e.writeUnserved(&text)
	}
	if len(e.shortages) > 0 {
		if text.Len() > 0 {
			text.WriteString("\n\nAlso, ")
		}
		e.writeShortages(&text)
	}
	return strings.TrimRight(text.String(), "\n")
}

func (e *Error) writeUnserved(text *strings.Builder) {
	fmt.Fprintf(text, "the API server %s does not serve resources that the controllers need:\n", e.server)
	var without []string
	for _, u := range e.unserved {
		fmt.Fprintf(text, "  %s, version %s (%s)\n", u.GroupResource(), u.Version, u.Controller)
		if leaveOut := "-" + u.Controller; !slices.Contains(without, leaveOut) {
			without = append(without, leaveOut)
		}
	}
	fmt.Fprintf(text, "Install them (keelson manifests crds | kubectl apply --server-side -f -), or leave these controllers out (--controllers=*,%s).",
		strings.Join(without, ","))
}

func (e *Error) writeShortages(text *strings.Builder) {
	fmt.Fprintf(text, "user %q of the API server %s lacks permissions that the controllers need.\n", e.user, e.server)
	for _, namespace := range e.scopes() {
		if namespace == "" {
			text.WriteString("\nMissing in the whole cluster:\n")
		} else {
			fmt.Fprintf(text, "\nMissing in namespace %s:\n", namespace)
		}
		e.writeScope(text, namespace)
	}
	if e.grantedIn != "" {
		fmt.Fprintf(text, "\nNamespace %s grants all of this that a namespace can grant: a Role works only in its own\n"+
			"namespace, and so does a RoleBinding to a ClusterRole. Either work in that namespace only\n"+
			"(--namespaces=%s), or bind a ClusterRole with a ClusterRoleBinding, as below.\n", e.grantedIn, e.grantedIn)
	}
	text.WriteString("\nAn administrator can grant what is missing with kubectl apply -f:\n\n")
	text.WriteString(e.Manifest)
}

// Missing returns the permissions that the user lacks.
func (e *Error) Missing() []Permission {
	var all []Permission
	for _, s := range e.shortages {
		all = append(all, s.missing...)
	}
	return all
}

// scopes returns the namespaces with missing permissions; first "" for the whole cluster.
func (e *Error) scopes() []string {
	scopes := map[string]bool{}
	for _, p := range e.Missing() {
		scopes[p.Namespace] = true
	}
	return slices.Sorted(maps.Keys(scopes))
}

// writeScope writes a line for each resource: the resource, the verbs, and the controller that needs them.
func (e *Error) writeScope(text *strings.Builder, namespace string) {
	table := tabwriter.NewWriter(text, 0, 0, 3, ' ', 0)
	for _, s := range e.shortages {
		var targets []string
		verbs := map[string][]string{}
		for _, p := range s.missing {
			if p.Namespace != namespace {
				continue
			}
			if _, seen := verbs[p.target()]; !seen {
				targets = append(targets, p.target())
			}
			verbs[p.target()] = append(verbs[p.target()], p.Verb)
		}
		for _, target := range targets {
			fmt.Fprintf(table, "  %s\t%s\t(%s)\n", target, strings.Join(verbs[target], ", "), s.Owner)
		}
	}
	// A strings.Builder cannot fail.
	_ = table.Flush()
}
