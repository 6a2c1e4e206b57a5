package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/api/crds"
)

// use is an operation of a user, as the API server authorizes it.
type use struct {
	verb, group, resource, namespace, name string
}

func (u use) String() string {
	text := u.verb + " " + schema.GroupResource{Group: u.group, Resource: u.resource}.String()
	if u.name != "" {
		text += " " + u.name
	}
	if u.namespace != "" {
		text += " in " + u.namespace
	}
	return text
}

// auditEvent is the relevant part of an entry of the audit log.
// https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
type auditEvent struct {
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Request     json.RawMessage   `json:"requestObject"`
	Annotations map[string]string `json:"annotations"`
}

// record has the operations of a user.
type record struct {
	uses map[use]bool
	// refused has a line for each forbidden operation that the user attempted.
	refused []string
	// blocked are the kinds of the owners whose deletion the user's objects block.
	blocked map[schema.GroupKind]bool
}

// recordOf reads the operations of a user from the audit log.
func (w *world) recordOf(t *testing.T, user string) record {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	// The API server may still be writing the last line.
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	r := record{uses: map[use]bool{}, blocked: map[schema.GroupKind]bool{}}
	for line := range bytes.Lines(raw) {
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("read the audit log: %v", err)
		}
		if event.User.Username == user {
			r.add(event)
		}
	}
	slices.Sort(r.refused)
	r.refused = slices.Compact(r.refused)
	return r
}

// add adds an entry. Of the API server's reasons for a rejection, only those of the authorizer,
// including checks by admission plugins, concern permissions.
func (r *record) add(event auditEvent) {
	o := event.Object
	u := use{event.Verb, o.APIGroup, o.Resource, o.Namespace, o.Name}
	if o.Subresource != "" {
		u.resource += "/" + o.Subresource
	}
	if event.Annotations["authorization.k8s.io/decision"] == "forbid" || isOwnerRefused(event.Response.Message) {
		r.refused = append(r.refused, fmt.Sprintf("%s: %s", u, event.Response.Message))
		return
	}
	r.uses[u] = true
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.Request, &object); err != nil {
		return // there is no body, or it is a patch
	}
	for _, owner := range object.OwnerReferences {
		if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
			r.blocked[schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()] = true
		}
	}
}

// isOwnerRefused recognizes the message of the admission plugin
// OwnerReferencesPermissionEnforcement. For up to half a minute it does not know a new CRD, which
// is not a missing permission.
func isOwnerRefused(message string) bool {
	return strings.Contains(message, "cannot set blockOwnerDeletion") && !strings.Contains(message, "cannot find RESTMapping")
}

// grant is an operation that a role allows.
type grant struct {
	use
	role string
}

// unused returns the grants that no operation in the record needed. A grant without a namespace
// applies to all namespaces, one without a name to all names.
func unused(grants []grant, r record, finalizers map[schema.GroupKind]string) []grant {
	needed := map[string]bool{}
	for kind := range r.blocked {
		needed[finalizers[kind]] = true
	}
	return slices.DeleteFunc(slices.Clone(grants), func(g grant) bool {
		if strings.HasSuffix(g.resource, "/finalizers") && g.verb == "update" {
			return needed[schema.GroupResource{Group: g.group, Resource: g.resource}.String()]
		}
		for u := range r.uses {
			if u.verb == g.verb && u.group == g.group && u.resource == g.resource &&
				(g.namespace == "" || g.namespace == u.namespace) && (g.name == "" || g.name == u.name) {
				return true
			}
		}
		return false
	})
}

// finalizersOf returns the resource that protects the finalizers of each of Keelson's kinds.
func finalizersOf(t *testing.T) map[schema.GroupKind]string {
	t.Helper()
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	all := map[schema.GroupKind]string{}
	for _, definition := range definitions {
		names := definition.Spec.Names
		all[schema.GroupKind{Group: definition.Spec.Group, Kind: names.Kind}] =
			schema.GroupResource{Group: definition.Spec.Group, Resource: names.Plural + "/finalizers"}.String()
	}
	return all
}
