package rehearsal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Result is what a finding means for an upgrade.
type Result string

// The results, the worst first.
const (
	// Refused: objects are lost or cannot be written after the upgrade.
	Refused Result = "Refused"
	// Warning: it works after the upgrade, and may not after the next one; or clients have to be changed.
	Warning Result = "Warning"
	// Unchecked: a rehearsal cannot tell.
	Unchecked Result = "Unchecked"
)

// Finding is what an upgrade does to objects of a kind.
type Finding struct {
	Result Result `json:"result"`
	// Kind is the kind, with the version and group for resources, such as "Workload scheduling.k8s.io/v1alpha1".
	Kind string `json:"kind"`
	// Objects are the names, with their namespaces; empty if they are only counted.
	Objects []string `json:"objects,omitempty"`
	// Count is the number of objects.
	Count int `json:"count"`
	// What happens, and what to do.
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Compare returns what the upgrade of a cluster would do, the worst first.
func Compare(before *Inventory, after *Checked) []Finding {
	findings := slices.Concat(removed(before, after.Inventory), responses(before, after), webhooks(before), definitions(before), aggregated(before))
	order := map[Result]int{Refused: 0, Warning: 1, Unchecked: 2}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(order[a.Result]-order[b.Result], strings.Compare(a.Kind, b.Kind))
	})
	return findings
}

// IsRefused reports whether there is an object that the upgrade would lose, or that could not be written after it.
func IsRefused(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Result == Refused })
}

// removed returns findings about versions that are not served any more. Nobody uses those without objects: the API server serves many
// versions of which a user has never heard.
func removed(before, after *Inventory) []Finding {
	versions := map[schema.GroupResource][]string{} // after
	for _, r := range after.Resources {
		versions[r.GroupResource()] = append(versions[r.GroupResource()], r.Version)
	}
	var findings []Finding
	for _, r := range before.Resources {
		left := versions[r.GroupResource()]
		use := before.Uses[r.GroupVersionResource]
		switch stored := before.Objects[r.GroupResource()]; {
		case slices.Contains(left, r.Version):
		case len(left) == 0 && r.Preferred && stored > 0:
			findings = append(findings, Finding{Refused, kindOf(r), nil, stored, after.Version + " does not serve this resource: the objects cannot be reached any more",
				"Replace the objects by those of another API, and delete them, before the upgrade"})
		case len(left) > 0 && use.Objects > 0:
			findings = append(findings, Finding{Warning, kindOf(r), nil, use.Objects, after.Version + " does not serve this version, in which " + writtenBy(use) + " wrote the objects",
				"Use " + strings.Join(left, " or ") + " in manifests and clients before the upgrade"})
		}
	}
	return findings
}

func writtenBy(use Use) string { return strings.Join(use.Managers, ", ") }

// kindOf returns the kind of a resource with its version and group.
func kindOf(r Resource) string { return r.Kind + " " + r.GroupVersion().String() }

// responses returns findings about what the fork says. Those of objects with the same text are one finding.
func responses(before *Inventory, after *Checked) []Finding {
	var findings []Finding
	type key struct {
		result     Result
		kind, what string
	}
	objects := map[key]*Finding{}
	add := func(r Response, result Result, what, remedy string) {
		k := key{result, kindOf(r.Resource), what}
		if objects[k] == nil {
			objects[k] = &Finding{Result: result, Kind: k.kind, What: what, Remedy: remedy}
		}
		objects[k].Objects = append(objects[k].Objects, r.Object)
		objects[k].Count++
	}
	for _, r := range after.Responses {
		if r.Object == "" {
			findings = append(findings, ofList(before, after, r)...)
			continue
		}
		switch {
		case apierrors.IsConflict(r.Err):
			add(r, Unchecked, "controllers changed it all the time", "Try again")
		case r.Err != nil:
			add(r, Refused, reason(r.Err), "Change the object so that "+after.Version+" accepts it, before the upgrade")
		}
		for _, text := range r.Warnings {
			add(r, Warning, text, "Change the object, and the manifest that it is created from")
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(objects), func(a, b key) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.what, b.what))
	}) {
		slices.Sort(objects[k].Objects)
		findings = append(findings, *objects[k])
	}
	return findings
}

// ofList returns findings about the list of a resource. Warnings about a version in which no objects were written concern nobody.
func ofList(before *Inventory, after *Checked, r Response) []Finding {
	stored := before.Objects[r.Resource.GroupResource()]
	definition := after.CRDs[r.Resource.GroupResource().String()]
	var findings []Finding
	switch {
	case r.Err != nil && definition.Converted:
		return []Finding{{Unchecked, kindOf(r.Resource), nil, stored, "the webhook that converts between versions does not run in the fork",
			"Make sure that the webhook supports " + after.Version}}
	case r.Err != nil:
		return []Finding{{Refused, kindOf(r.Resource), nil, stored, "the objects cannot be listed: " + reason(r.Err),
			"Replace the objects by those of another version or API, and delete them, before the upgrade"}}
	}
	use := before.Uses[r.Resource.GroupVersionResource]
	if use.Objects == 0 {
		return nil
	}
	for _, text := range r.Warnings {
		findings = append(findings, Finding{Warning, kindOf(r.Resource), nil, use.Objects, text + "; the objects were written by " + writtenBy(use),
			"Change manifests and clients"})
	}
	return findings
}

// invalid is the beginning of the message about an invalid object, with its name.
var invalid = regexp.MustCompile(`^\S+ "[^"]*" is (invalid|forbidden): `)

// reason returns the message of a refusal without the name of the object.
func reason(err error) string {
	text := err.Error()
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
	}
	return strings.Join(strings.Fields(invalid.ReplaceAllString(text, "")), " ")
}

// webhooks returns findings about webhooks, which the rehearsal does not call.
func webhooks(before *Inventory) []Finding {
	var findings []Finding
	for _, w := range before.Webhooks {
		called := 0
		for resource, count := range before.Objects {
			if w.concerns(resource) {
				called += count
			}
		}
		remedy := "Make sure that its program supports the new version"
		if w.Blocks {
			remedy += ". While it does not respond, these objects cannot be written: failurePolicy is Fail"
		}
		findings = append(findings, Finding{Unchecked, w.Kind, []string{w.Configuration}, called, "the webhook " + w.Name + " may be called for " + plural(called) +
			", and does not run in the fork", remedy})
	}
	return findings
}

// concerns reports whether a webhook may be called for writes of a resource. Its selectors are not evaluated.
func (w Webhook) concerns(resource schema.GroupResource) bool {
	matches := func(list []string, word string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, word)
	}
	return slices.ContainsFunc(w.Rules, func(rule admissionv1.RuleWithOperations) bool {
		writes := slices.ContainsFunc(rule.Operations, func(o admissionv1.OperationType) bool {
			return o == admissionv1.OperationAll || o == admissionv1.Create || o == admissionv1.Update
		})
		return writes && matches(rule.APIGroups, resource.Group) && (matches(rule.Resources, resource.Resource) || slices.Contains(rule.Resources, "*/*"))
	})
}

// definitions returns findings about CustomResourceDefinitions.
func definitions(before *Inventory) []Finding {
	var findings []Finding
	for _, name := range slices.Sorted(maps.Keys(before.CRDs)) {
		if versions := before.CRDs[name].StoredOnly; len(versions) > 0 {
			findings = append(findings, Finding{Warning, "CustomResourceDefinition", []string{name}, 1,
				"objects may be stored in " + strings.Join(versions, ", ") + ", which is not served",
				"Write all objects again, and remove the version from status.storedVersions"})
		}
	}
	return findings
}

// aggregated returns findings about APIs that programs in the cluster serve.
func aggregated(before *Inventory) []Finding {
	var findings []Finding
	for gv := range before.Aggregated {
		findings = append(findings, Finding{Unchecked, "APIService", []string{gv.Version + "." + gv.Group}, 1, "its program does not run in the fork",
			"Make sure that its program supports the new version"})
	}
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Objects[0], b.Objects[0]) })
	return findings
}

func plural(objects int) string {
	if objects == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", objects)
}
