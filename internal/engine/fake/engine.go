// Package fake is an in-memory engine for tests, which control the duration and failures of operations.
package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

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
	r.Spec.RotateRequestedAt = nil                                                                               // as the engine rke, this one has no credentials to rotate
	text, err := json.Marshal(r.Spec)
	if err != nil {
		panic(err) // a spec can be marshalled
	}
	return fmt.Sprintf("hash of %s", text)
}

// restored returns the token of the last restore.
func (c *Cluster) restored() string {
	if len(c.Restored) == 0 {
		return ""
	}
	return c.Restored[len(c.Restored)-1].Token
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
		operation.Stale = !operation.Delete && c.wanted != wantedBy(r)
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
			return nil, false // it starts or stops listening
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
		Delete: isDelete, Restore: cluster.TokenOf(r.Restore), State: v1alpha1.OperationProcessing, Description: "Working", Began: e.world.clock.Now(),
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
