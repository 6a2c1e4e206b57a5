// Package fake is an in-memory engine for tests, which control the duration and failures of operations.
package fake

import (
	"context"
	"encoding/json"
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

// Engine is a cluster.Engine.
type Engine struct {
	world   *World
	changed func(string)

	mu       sync.Mutex
	closed   bool
	attended map[types.UID]string // to the hash of what it was asked for

	listening map[types.UID]bool // for clients of idle clusters
}

// New returns an engine for the clusters of a world. A second engine simulates a restarted manager.
func New(w *World) *Engine {
	return &Engine{world: w, changed: func(string) {}, attended: map[types.UID]string{}, listening: map[types.UID]bool{}}
}

// Notify implements cluster.Engine.
func (e *Engine) Notify(changed func(string)) { e.changed = changed }

// enter records a call and returns the injected error.
func (e *Engine) enter(method string, r cluster.Request) error {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return cluster.ErrStopping
	}
	call := Call{Method: method, Cluster: r.Name}
	e.world.mu.Lock()
	fault := e.world.fault
	if method != "Observe" {
		e.world.calls = append(e.world.calls, call)
	}
	e.world.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(call)
}

func hashOf(r cluster.Request) string {
	r.Spec.Running, r.Spec.ExpiresAfter, r.Spec.Snapshots, r.Spec.Restore, r.Spec.Idle = nil, nil, nil, nil, nil // they are not for the engine
	text, err := json.Marshal(r.Spec)
	if err != nil {
		panic(err) // a spec can be marshalled
	}
	return fmt.Sprintf("hash of %s", text)
}

// tokenOf returns the token of a request to restore; empty if there is none.
func tokenOf(r *cluster.Restore) string {
	if r == nil {
		return ""
	}
	return r.Token
}

// restored returns the token of the last restore.
func (c *Cluster) restored() string {
	if len(c.Restored) == 0 {
		return ""
	}
	return c.Restored[len(c.Restored)-1].Token
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

// stopped stands for a request that stops a cluster.
const stopped = "stopped"

// wantedBy identifies what a request asks for.
func wantedBy(r cluster.Request) string {
	if r.Stop {
		return stopped
	}
	return hashOf(r)
}

// Observe implements cluster.Engine.
func (e *Engine) Observe(_ context.Context, r cluster.Request) (cluster.Observation, error) {
	if err := e.enter("Observe", r); err != nil {
		return cluster.Observation{}, err
	}
	e.mu.Lock()
	attended := e.attended[r.UID]
	e.mu.Unlock()
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	c := e.world.clusters[r.UID]
	switch {
	case c == nil && r.Applied != "" && !r.Deleting:
		return cluster.Observation{}, fmt.Errorf("%w: it was removed", cluster.ErrStateMissing)
	case c == nil && r.Snapshot.Err != nil && !r.Deleting:
		return cluster.Observation{}, r.Snapshot.Err
	case c == nil:
		return cluster.Observation{Stopped: true}, nil
	}
	idle := r.Spec.Idle != nil && !r.Stop && !r.Deleting && c.Idle
	if idle {
		r.Stop, r.Idle = true, true
	}
	e.mu.Lock()
	listening := e.listening[r.UID]
	e.mu.Unlock()
	seen := cluster.Observation{
		LastClient: c.LastClient, Idle: idle, Listening: listening, Woken: c.Woken,
		Exists: true, Applied: c.Hash == hashOf(r), Attended: attended == wantedBy(r), Running: len(c.Components) > 0,
		ConfigHash: c.Hash, Config: c.Hash, Restored: c.restored(), Kubeconfig: c.Kubeconfig, KubeconfigPath: c.KubeconfigPath,
		Stopped:    !c.isBusy() && !c.isUp(),
		Components: slices.Clone(c.Components), Nodes: c.Nodes, Users: c.Users, Notes: c.Notes, Waiting: "the fake cluster " + c.Name,
	}
	for _, component := range c.Components {
		seen.Running = seen.Running && component.Up
	}
	if c.Operation != nil {
		operation := *c.Operation
		operation.Stale = !operation.Delete && (c.wanted != wantedBy(r) || tokenOf(c.restore) != tokenOf(r.Restore))
		seen.Operation = &operation
	}
	if c.Kubeconfig != nil {
		seen.Endpoint = "https://" + c.Name + ".example:6443"
	}
	return seen, nil
}

// Apply implements cluster.Engine.
func (e *Engine) Apply(_ context.Context, r cluster.Request) error {
	return e.begin("Apply", r, func() (*Cluster, bool) {
		c := e.world.clusters[r.UID]
		if c == nil && r.Stop {
			return nil, false
		}
		if c == nil {
			c = &Cluster{Name: r.Name}
			e.world.clusters[r.UID] = c
		}
		c.ManagementClusterUID = r.ManagementClusterUID
		c.restore = r.Restore
		if c.wanted = wantedBy(r); c.Hash == c.wanted {
			for i := range c.Components {
				c.Components[i].Up = true
			}
		}
		c.Idle, c.Woken = r.Idle, false
		e.mu.Lock()
		defer e.mu.Unlock()
		e.attended[r.UID], e.listening[r.UID] = c.wanted, r.Idle
		if r.Stop && !c.isUp() && !c.isBusy() {
			return nil, false // it begins to listen, or ends to
		}
		return c, false
	})
}

// Delete implements cluster.Engine.
func (e *Engine) Delete(_ context.Context, r cluster.Request) error {
	return e.begin("Delete", r, func() (*Cluster, bool) { return e.world.clusters[r.UID], true })
}

// begin starts an operation on the cluster that find returns, if there is one.
func (e *Engine) begin(method string, r cluster.Request, find func() (c *Cluster, isDelete bool)) error {
	if err := e.enter(method, r); err != nil {
		return err
	}
	e.world.mu.Lock()
	defer func() {
		e.world.mu.Unlock()
		e.changed(r.Name)
	}()
	c, isDelete := find()
	if c == nil {
		return nil
	}
	c.Operation = &cluster.Operation{
		Delete: isDelete, State: v1alpha1.OperationProcessing, Description: "Working", Began: e.world.clock.Now(),
	}
	if hold := e.world.latency; hold == nil || !hold(Call{Method: method, Cluster: r.Name}) {
		e.world.end(r.UID, c, nil)
	}
	return nil
}

// Abandon implements cluster.Engine.
func (e *Engine) Abandon(_ context.Context, r cluster.Request) error {
	e.mu.Lock()
	delete(e.attended, r.UID)
	e.mu.Unlock()
	return e.enter("Abandon", r)
}

// List implements cluster.OrphanStopper.
func (e *Engine) List(context.Context) ([]cluster.HostedCluster, error) {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	var all []cluster.HostedCluster
	for uid, c := range e.world.clusters {
		if c.ManagementClusterUID != "" && !c.isBusy() && slices.ContainsFunc(c.Components, func(c cluster.Component) bool { return c.Up }) {
			all = append(all, cluster.HostedCluster{Name: c.Name, UID: uid, ManagementClusterUID: c.ManagementClusterUID, Dir: "/fake/" + c.Name})
		}
	}
	return all, nil
}

// StopOrphan implements cluster.OrphanStopper.
func (e *Engine) StopOrphan(_ context.Context, uid types.UID) error {
	e.world.mu.Lock()
	c := e.world.clusters[uid]
	e.world.mu.Unlock()
	if c == nil {
		return nil
	}
	if err := e.enter("StopOrphan", cluster.Request{Name: c.Name}); err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.attended, uid)
	e.mu.Unlock()
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	if c.isBusy() {
		return fmt.Errorf("%w: an operation is in progress", cluster.ErrBusy)
	}
	for i := range c.Components {
		c.Components[i].Up = false
	}
	return nil
}

func (c *Cluster) isBusy() bool {
	return c.Operation != nil && c.Operation.State == v1alpha1.OperationProcessing
}

// Close implements cluster.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}
