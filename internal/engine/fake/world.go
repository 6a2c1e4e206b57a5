package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

// World contains the fake clusters. It outlives the engines.
type World struct {
	mu       sync.Mutex
	clock    clock.PassiveClock
	clusters map[types.UID]*Cluster
	fault    func(Call) error
	latency  func(Call) bool
	calls    []Call
}

// Call is one call to an engine.
type Call struct {
	// Method is Observe, Apply, Delete, Abandon or StopOrphan.
	Method string
	// Cluster is the name of the Cluster.
	Cluster string
}

// Cluster is a fake cluster.
type Cluster struct {
	// Name is the name of its Cluster.
	Name string
	// ManagementClusterUID is the one of the last applied Request.
	ManagementClusterUID types.UID
	// Spec is the last applied spec and Hash its hash; empty if there is none.
	Hash string
	// Kubeconfig is its kubeconfig.
	Kubeconfig []byte
	// KubeconfigPath is returned as Observation.KubeconfigPath.
	KubeconfigPath string
	// Components are its processes.
	Components []cluster.Component
	// Operation is the last one.
	Operation *cluster.Operation
	// Users are returned as Observation.Users.
	Users []cluster.UserKubeconfig
	// Nodes is returned as Observation.Nodes.
	Nodes *cluster.Nodes
	// Notes are returned as Observation.Notes.
	Notes []string
	// Restored are the restores that were done, the last one at the end.
	Restored []cluster.Restore

	// LastClient is when a client was last connected; zero for a cluster that does not watch its clients. Idle and Woken are fields of
	// an Observation.
	LastClient  time.Time
	Idle, Woken bool

	wanted  string
	restore *cluster.Restore // that the operation does
}

// NewWorld returns an empty world.
func NewWorld(c clock.PassiveClock) *World {
	return &World{clock: c, clusters: map[types.UID]*Cluster{}}
}

// Fail makes calls fail with the error of fault; nil disables it. A fault that panics simulates a crash before the
// call.
func (w *World) Fail(fault func(Call) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// Hold keeps operations for which hold returns true in progress until End; nil ends all at once.
func (w *World) Hold(hold func(Call) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency = hold
}

// End ends the operation in progress, with an error or successfully.
func (w *World) End(uid types.UID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clusters[uid]; c != nil && c.Operation != nil {
		w.end(uid, c, err)
	}
}

// Change modifies a cluster outside of the engine. change gets nil for a missing cluster, and deletes a cluster by
// setting it to nil.
func (w *World) Change(uid types.UID, change func(*Cluster) *Cluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if changed := change(w.clusters[uid]); changed != nil {
		w.clusters[uid] = changed
	} else {
		delete(w.clusters, uid)
	}
}

// Names returns the names of the clusters that exist.
func (w *World) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, c := range w.clusters {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}

// Calls returns the calls since the last call of Calls, except Observe.
func (w *World) Calls() []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// end implements End; the lock is held.
func (w *World) end(uid types.UID, c *Cluster, err error) {
	c.Operation.Ended = w.clock.Now()
	if err != nil {
		c.Operation.State, c.Operation.Description, c.Operation.Err = v1alpha1.OperationFailed, err.Error(), err
		return
	}
	c.Operation.State, c.Operation.Description = v1alpha1.OperationSucceeded, "Done"
	if c.Operation.Delete {
		delete(w.clusters, uid)
		return
	}
	if c.wanted == stopped {
		for i := range c.Components {
			c.Components[i].Up = false
		}
		return
	}
	c.Hash = c.wanted
	if c.restore != nil && c.restored() != c.restore.Token {
		c.Restored = append(c.Restored, *c.restore)
	}
	if c.Kubeconfig == nil {
		c.Kubeconfig = Kubeconfig("https://" + c.Name + ".example:6443")
	}
	c.Components = nil
	for _, name := range []string{cluster.ComponentEtcd, cluster.ComponentAPIServer} {
		c.Components = append(c.Components, cluster.Component{Name: name, Up: true, Since: w.clock.Now()})
	}
}

// Kubeconfig returns a kubeconfig for a server, with a token.
func Kubeconfig(server string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: fake}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server)
}

// isUp reports whether a component runs.
func (c *Cluster) isUp() bool {
	return slices.ContainsFunc(c.Components, func(c cluster.Component) bool { return c.Up })
}

// Connect simulates a client that connects to an idle cluster.
func (w *World) Connect(uid types.UID) {
	w.Change(uid, func(c *Cluster) *Cluster {
		c.Idle, c.Woken = false, true
		return c
	})
}
