package console

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/internal/access/client"
)

// Kind is a kind with pages of its own.
type Kind struct {
	Group      string `json:"group"`
	Version    string `json:"version"`
	Plural     string `json:"plural"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

// resource is a resource of the API.
type resource struct{ group, plural string }

// readable are the resources of Kubernetes that the page reads without a look at the discovery: events, and what the
// objects of Keelson create. Secrets are not among them.
var readable = []resource{
	{"", "events"}, {"", "namespaces"}, {"", "nodes"}, {"", "pods"}, {"apps", "deployments"}, {"batch", "jobs"},
}

// readableInClusters are the resources that the page reads in a Cluster, through the access API.
var readableInClusters = []resource{
	{"", "events"}, {"", "namespaces"}, {"", "nodes"}, {"", "pods"}, {"", "services"}, {"apps", "daemonsets"}, {"apps", "deployments"},
	{"apps", "statefulsets"}, {"batch", "cronjobs"}, {"batch", "jobs"},
}

// reviews are the questions of the page about its user.
var reviews = []string{
	"/apis/authentication.k8s.io/v1/selfsubjectreviews",
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
}

// rules are the requests that the page makes, besides those for the other kinds of the API's discovery, see allow. Others do
// not reach the API: the page of a Pod behind the subresource proxy, for example, would run in the origin of the console.
type rules struct {
	kinds []Kind
	ours  map[resource]bool
	reads map[resource]bool
	// inClusters are those of the APIs of Clusters.
	inClusters map[resource]bool
}

// newRules returns the rules for all kinds of Keelson.
func newRules() (*rules, error) {
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	r := &rules{ours: map[resource]bool{}, reads: map[resource]bool{}, inClusters: map[resource]bool{}}
	for _, d := range definitions {
		for _, version := range d.Spec.Versions {
			if version.Storage {
				r.kinds = append(r.kinds, Kind{d.Spec.Group, version.Name, d.Spec.Names.Plural, d.Spec.Names.Kind, d.Spec.Scope == "Namespaced"})
			}
		}
		r.ours[resource{d.Spec.Group, d.Spec.Names.Plural}] = true
	}
	for _, resource := range readable {
		r.reads[resource] = true
	}
	for _, resource := range readableInClusters {
		r.inClusters[resource] = true
	}
	return r, nil
}

const (
	name = `[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?`
	// object is the name of an object: roles may have others than the usual names.
	object  = `[A-Za-z0-9](?:[A-Za-z0-9:._-]*[A-Za-z0-9])?`
	objects = `(?:namespaces/` + name + `/)?(` + name + `)(?:/(` + object + `))?$`
)

// The page reads the subresources of subresources; corePath and groupPath match none.
var (
	subresources = regexp.MustCompile(`^/api/v1/namespaces/` + name + `/pods/` + name + `/log$` +
		`|^/apis/` + client.Group + `/` + client.Version + `/namespaces/` + name + `/` + client.Resource + `/` + name + `/(?:` + client.Log + `|` + client.Screenshot + `|` + client.Usage + `)$`)
	corePath  = regexp.MustCompile(`^/api/v1/` + objects)
	groupPath = regexp.MustCompile(`^/apis/(` + name + `)/` + name + `/` + objects)
)

// definitions is the path of the OpenAPI of a group, which the editor reads. It has no data.
var definitions = regexp.MustCompile(`^/openapi/v3/(?:api/v1|apis/` + name + `/` + name + `)$`)

// cluster is the path of the API of a Cluster, and podLog the log of a Pod.
var (
	cluster = regexp.MustCompile(`^/apis/` + client.Group + `/` + client.Version + `/` + client.Clusters + `/` + name + `/` + client.Proxy + `(/.*)$`)
	podLog  = regexp.MustCompile(`^/api/v1/namespaces/` + name + `/pods/` + name + `/log$`)
)

// allow reports whether the page makes such a request. The path is the one as sent: one with an escaped character
// never matches.
func (r *rules) allow(method, path string) bool {
	for _, review := range reviews {
		if path == review {
			return method == http.MethodPost
		}
	}
	if path == "/version" || subresources.MatchString(path) && !strings.Contains(path, "..") {
		return method == http.MethodGet
	}
	if definitions.MatchString(path) {
		return method == http.MethodGet && !strings.Contains(path, "..")
	}
	if m := cluster.FindStringSubmatch(path); m != nil {
		asked, _, ok := parse(m[1])
		return method == http.MethodGet && !strings.Contains(path, "..") && (ok && r.inClusters[asked] || podLog.MatchString(m[1]))
	}
	asked, object, ok := parse(path)
	switch {
	case !ok:
		return false
	case method == http.MethodGet:
		return r.ours[asked] || r.reads[asked]
	case method == http.MethodPost:
		return r.ours[asked] && object == ""
	case method == http.MethodPut, method == http.MethodPatch, method == http.MethodDelete:
		return r.ours[asked] && object != ""
	}
	return false
}

// parse returns the resource of a path and the name of the object, "" for all.
func parse(path string) (resource, string, bool) {
	if path == "/api/v1/namespaces" || strings.Contains(path, "..") {
		return resource{"", "namespaces"}, "", path == "/api/v1/namespaces"
	}
	if m := corePath.FindStringSubmatch(path); m != nil {
		return resource{"", m[1]}, m[2], true
	}
	if m := groupPath.FindStringSubmatch(path); m != nil {
		return resource{m[1], m[2]}, m[3], true
	}
	return resource{}, "", false
}
