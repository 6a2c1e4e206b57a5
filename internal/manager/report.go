package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// PreflightError says what the API server lacks before the controllers can run. Its
// text is for the person who has to mend it, the manifest included.
type PreflightError struct {
	// Manifest grants what is missing, or makes the namespace that is, as YAML for
	// kubectl apply. Empty if only resources are missing.
	Manifest string

	server string
	user   string
	// namespace does not exist, and could not be made for that reason.
	namespace string
	reason    error
	unserved  []unserved
	shortages []shortage
	// grantedIn is the namespace in which everything is granted that is missing in
	// the whole cluster; usually empty.
	grantedIn string
}

// Error implements error.
func (e *PreflightError) Error() string {
	var text strings.Builder
	if e.namespace != "" {
		fmt.Fprintf(&text, "the API server %s has no namespace %s, where the manager keeps its Lease and Secrets, and it could not be made: %v.\n"+
			"\nThis makes it (kubectl apply -f, by somebody who may):\n\n%s", e.server, e.namespace, e.reason, e.Manifest)
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

func (e *PreflightError) writeUnserved(text *strings.Builder) {
	fmt.Fprintf(text, "the API server %s does not serve resources that the controllers need:\n", e.server)
	var without []string
	for _, u := range e.unserved {
		fmt.Fprintf(text, "  %s, version %s (%s)\n", u.resource.GroupResource(), u.resource.Version, u.controller)
		if leaveOut := "-" + u.controller; !slices.Contains(without, leaveOut) {
			without = append(without, leaveOut)
		}
	}
	fmt.Fprintf(text, "Install them (keelson manifests crds | kubectl apply --server-side -f -), or leave these controllers out (--controllers=*,%s).",
		strings.Join(without, ","))
}

func (e *PreflightError) writeShortages(text *strings.Builder) {
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
	text.WriteString("\nThis grants what is missing (kubectl apply -f, by somebody who may grant it):\n\n")
	text.WriteString(e.Manifest)
}

// scopes returns the namespaces in which something is missing, "" for the whole cluster
// first.
func (e *PreflightError) scopes() []string {
	scopes := map[string]bool{}
	for _, s := range e.shortages {
		for _, p := range s.missing {
			scopes[p.namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(scopes))
}

// writeScope writes a line for each resource: the verbs, the resource, who needs it.
func (e *PreflightError) writeScope(text *strings.Builder, namespace string) {
	table := tabwriter.NewWriter(text, 0, 0, 3, ' ', 0)
	for _, s := range e.shortages {
		var targets []string
		verbs := map[string][]string{}
		for _, p := range s.missing {
			if p.namespace != namespace {
				continue
			}
			if _, seen := verbs[p.target()]; !seen {
				targets = append(targets, p.target())
			}
			verbs[p.target()] = append(verbs[p.target()], p.verb)
		}
		for _, target := range targets {
			fmt.Fprintf(table, "  %s\t%s\t(%s)\n", target, strings.Join(verbs[target], ", "), s.owner)
		}
	}
	// A strings.Builder cannot fail.
	_ = table.Flush()
}
