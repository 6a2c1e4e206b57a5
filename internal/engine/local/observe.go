package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/process"
)

// Observe implements cluster.Engine.
func (e *Engine) Observe(ctx context.Context, r cluster.Request) (cluster.Observation, error) {
	var seen cluster.Observation
	dir, m := e.dir(r.UID), e.member(r.UID)
	if seen.Idle = r.Spec.Idle != nil && !r.Stop && !r.Deleting && e.isIdle(r.UID); seen.Idle {
		r.Stop, r.Idle = true, true
	}
	wanted, err := e.newDesire(ctx, r)
	if err != nil && !r.Deleting && !r.Stop { // a cluster with an invalid spec can be removed and stopped
		return seen, err
	}
	seen.Stopped = e.isStopped(r.UID)
	if m != nil {
		m.observe(&seen, wanted)
	}
	if r.Deleting {
		seen.Exists = m != nil || controlplane.Remains(dir)
		if seen.Exists {
			seen.Waiting = "the processes and the files of the cluster in " + dir
		}
		return seen, nil
	}
	seen.Restored = controlplane.Restored(dir)
	applied, err := readApplied(dir)
	switch {
	case err != nil:
		return seen, err
	case applied == nil && r.Applied != "" && !hasData(dir):
		return seen, fmt.Errorf("%w: %s is gone, and with it all objects of the cluster: "+
			"restore it from a backup, or delete this Cluster and create it again", cluster.ErrStateMissing, dir)
	case applied == nil && m == nil && !r.Stop:
		if _, err := e.checkSnapshot(r, wanted, applied); err != nil {
			return seen, err
		}
		seen.Exists = controlplane.Remains(dir)
		return seen, nil
	case applied == nil:
		seen.Exists = m != nil || controlplane.Remains(dir)
		return seen, nil
	}
	seen.Exists = true
	seen.Applied, seen.Rotated = wanted.isApplied(applied), applied.Rotation
	seen.Config, seen.ConfigHash = applied.Config, applied.Hash
	if seen.Components == nil {
		seen.Components = m.peek(dir)
	}
	seen.Running = len(seen.Components) > 0
	for _, c := range seen.Components {
		seen.Running = seen.Running && c.Up
	}
	if seen.Operation != nil && seen.Operation.State == v1alpha1.OperationProcessing && !seen.Applied && seen.Rotated != r.Rotation {
		return seen, nil // the API may not trust the credentials in the file yet
	}
	if data, err := os.ReadFile(filepath.Join(dir, "kubeconfig")); err == nil {
		if access, err := kubeconfig.Parse(data); err == nil {
			seen.Kubeconfig, seen.Endpoint = data, access.Server
		}
	}
	if !seen.Applied {
		return seen, nil // the credentials may be those of a user before a change
	}
	seen.Users = readUsers(dir, r.Spec.Users)
	return seen, nil
}

// readUsers returns the kubeconfigs of the users that have one.
func readUsers(dir string, users []v1alpha1.ClusterUser) []cluster.UserKubeconfig {
	var all []cluster.UserKubeconfig
	for _, u := range users {
		if data, err := controlplane.UserKubeconfig(dir, u.Name); err == nil {
			all = append(all, cluster.UserKubeconfig{Name: u.Name, Kubeconfig: data})
		}
	}
	return all
}

// observe returns the observation of a cluster that the engine supervises.
func (m *member) observe(seen *cluster.Observation, wanted desire) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.op != nil {
		op := *m.op
		op.Stale = !op.Delete && m.opFor != wanted.key()
		seen.Operation = &op
	}
	seen.Attended = m.done != nil && !m.isOutdated(wanted) || m.done == nil && m.present != "" && m.present == wanted.key() && !m.draining
	seen.Listening = m.idleListener != nil && m.idleListener.isListening()
	if m.cp == nil {
		seen.Woken = m.idleListener != nil && m.idleListener.wasContacted()
		return
	}
	seen.LastClient = m.lastClient
	if m.nodes != nil {
		nodes := *m.nodes
		seen.Nodes = &nodes
	}
	for _, c := range m.cp.Components() {
		component := newComponent(c.Name, c.Status)
		component.Problem = c.Problem
		seen.Components = append(seen.Components, component)
	}
}

func newComponent(name string, s process.Status) cluster.Component {
	c := cluster.Component{Name: name, Up: s.State == process.Running, Since: s.StartedAt}
	switch {
	case s.State == process.Exited && s.Signal != "":
		c.Detail = "it was ended by " + s.Signal
	case s.State == process.Exited:
		c.Detail = fmt.Sprintf("it has ended with exit code %d", s.ExitCode)
	}
	return c
}

// peek returns the processes of a cluster without a control plane: an operation starts it, or the engine does not supervise it and m is nil.
func (m *member) peek(dir string) []cluster.Component {
	replacing := false
	if m != nil {
		m.mu.Lock()
		replacing = m.replacing
		m.mu.Unlock()
	}
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		return nil
	}
	var all []cluster.Component
	for _, s := range statuses {
		c := newComponent(s.ID, s)
		c.Up = c.Up && (c.Name != cluster.ComponentAPIServer || !replacing)
		all = append(all, c)
	}
	return all
}
