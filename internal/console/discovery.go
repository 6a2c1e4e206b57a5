package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/client"
)

// discovered are the resources of the API that can be listed, as its discovery has them. Requests for them pass the console;
// what is not discovered, such as the path of all watches below /api/v1/watch, does not.
type discovered struct {
	mu    sync.Mutex
	at    time.Time
	known map[resource]bool
}

// discoveryInterval is the shortest time between two questions to the API because of a resource that is not known.
const discoveryInterval = 5 * time.Second

// secrets never pass: who has a session of the console may use all of what passes.
var secrets = resource{"", "secrets"}

// OtherKind is a kind of the API that Keelson does not define.
type OtherKind struct {
	Kind
	// Watch is false for kinds that can only be read again.
	Watch bool `json:"watch"`
	// Update is false for kinds without that verb, which are not edited.
	Update bool `json:"update"`
}

// kinds is the answer about the API.
type kinds struct {
	Kinds []OtherKind `json:"kinds"`
	// Access is whether the API gives access to machines.
	Access bool `json:"access"`
}

// tellKinds serves the kinds that the API has besides those of Keelson.
func (c *Console) tellKinds(w http.ResponseWriter, r *http.Request) {
	found, status := c.discover(r.Context())
	if status != nil {
		answer(w, int(status.Code), status)
		return
	}
	answer(w, http.StatusOK, found)
}

// discover reads the discovery of the API as the user.
func (c *Console) discover(ctx context.Context) (kinds, *metav1.Status) {
	all := kinds{Kinds: []OtherKind{}}
	known := map[resource]bool{}
	for _, path := range []string{"/api", "/apis"} {
		var list discoveryv2.APIGroupDiscoveryList
		if status := c.readAs(ctx, path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", &list); status != nil {
			return kinds{}, status
		}
		if list.Kind != "APIGroupDiscoveryList" {
			return kinds{}, newStatus(http.StatusNotImplemented, metav1.StatusReasonUnknown, "The Kubernetes API does not list its kinds in one answer: that needs Kubernetes 1.30.")
		}
		for i := range list.Items {
			all.Access = all.Access || list.Items[i].Name == client.Group
			all.Kinds = c.rules.addKinds(all.Kinds, &list.Items[i], known)
		}
	}
	slices.SortFunc(all.Kinds, func(a, b OtherKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural))
	})
	c.discovered.mu.Lock()
	c.discovered.known, c.discovered.at = known, time.Now()
	c.discovered.mu.Unlock()
	return all, nil
}

// addKinds adds the resources of a group that can be listed, in the first version that has them, which the API prefers.
func (r *rules) addKinds(all []OtherKind, group *discoveryv2.APIGroupDiscovery, known map[resource]bool) []OtherKind {
	for _, version := range group.Versions {
		for _, found := range version.Resources {
			name := resource{group.Name, found.Resource}
			if r.ours[name] || known[name] || name == secrets || group.Name == client.Group || found.ResponseKind == nil || !slices.Contains(found.Verbs, "list") {
				continue
			}
			known[name] = true
			kind := Kind{group.Name, version.Version, found.Resource, found.ResponseKind.Kind, found.Scope == discoveryv2.ScopeNamespace}
			all = append(all, OtherKind{kind, slices.Contains(found.Verbs, "watch"), slices.Contains(found.Verbs, "update")})
		}
	}
	return all
}

// allow reports whether the page makes such a request: one of the rules, or one for a resource of the API's discovery. Of those,
// objects are read, changed and deleted one at a time.
func (c *Console) allow(ctx context.Context, method, path string) bool {
	if c.rules.allow(method, path) {
		return true
	}
	asked, object, ok := parse(path)
	if !ok || asked == secrets || c.rules.ours[asked] {
		return false
	}
	switch method {
	case http.MethodGet:
	case http.MethodPut, http.MethodDelete:
		if object == "" {
			return false
		}
	default:
		return false
	}
	return c.isDiscovered(ctx, asked)
}

// isDiscovered reports whether the API has a resource. It asks the API again if the resource is not known.
func (c *Console) isDiscovered(ctx context.Context, asked resource) bool {
	c.discovered.mu.Lock()
	known, recent := c.discovered.known[asked], time.Since(c.discovered.at) < discoveryInterval
	c.discovered.mu.Unlock()
	if known || recent {
		return known
	}
	if _, status := c.discover(ctx); status != nil {
		return false
	}
	c.discovered.mu.Lock()
	defer c.discovered.mu.Unlock()
	return c.discovered.known[asked]
}
