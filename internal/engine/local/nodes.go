package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/drain"
	"github.com/keelson-dev/keelson/internal/node"
)

// errNoRealNodes is the error of an engine without Options.Machine.
var errNoRealNodes = errors.New("this manager runs no real nodes")

// chooseNodes sets the nodes of the spec. The error says what this machine lacks for real ones: they are never replaced by simulated
// ones.
func (e *Engine) chooseNodes(d *desire) error {
	if d.spec.Nodes == nil {
		d.simulated = e.opts.Nodes
		return nil
	}
	d.simulated, d.real = int(ptr.Deref(d.spec.Nodes.Simulated, 0)), int(ptr.Deref(d.spec.Nodes.Real, 0))
	if d.real == 0 {
		return nil
	}
	if e.opts.Machine == nil {
		return fmt.Errorf("%w: spec.nodes.real: %w", cluster.ErrUnavailable, errNoRealNodes)
	}
	machine, err := e.opts.Machine()
	if err != nil {
		return fmt.Errorf("%w: spec.nodes.real: %w", cluster.ErrUnavailable, err)
	}
	if d.real > 1 && !machine.Root {
		return fmt.Errorf("%w: spec.nodes.real: several real nodes need a manager that runs as root; without root, choose 1", cluster.ErrUnavailable)
	}
	machine.Layers = e.opts.Layers
	d.machine = &machine
	return nil
}

// isOutdated reports whether the operation in progress drains nodes for another desired state, in which they may be wanted again. The caller
// holds the lock.
func (m *member) isOutdated(wanted desire) bool {
	return m.done != nil && m.draining && !m.op.Delete && m.opFor != stopKey &&
		(m.opFor != wanted.key() || m.op.Restore != cluster.TokenOf(wanted.restore))
}

// drainTimeout limits how long the removal of a node waits for its Pods. The next attempt goes on.
const drainTimeout = 5 * time.Minute

// unattendedTimeout limits how long the API of a cluster may take to respond whose processes an earlier manager has started.
const unattendedTimeout = 10 * time.Second

// drainNodes empties the real nodes that are not wanted any more, before they are removed. It fails if Pods would be lost with
// them. What is on a node that is not ready cannot leave it; nor if the API does not respond, and nothing but the start that
// follows restarts it.
func (e *Engine) drainNodes(ctx context.Context, m *member, wanted desire) error {
	dir := e.dir(m.uid)
	indexes, err := controlplane.NodeIndexes(dir)
	if err != nil {
		return err
	}
	surplus := slices.DeleteFunc(indexes, func(index int) bool { return index < wanted.real })
	if len(surplus) == 0 || !e.hasProcesses(m.uid) {
		return nil
	}
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, attended := e.activity(m.uid); !attended {
		asking, cancel := context.WithTimeout(ctx, unattendedTimeout)
		defer cancel()
		if _, err := client.CoreV1().Nodes().List(asking, metav1.ListOptions{Limit: 1}); err != nil {
			e.opts.Log.Error(err, "Could not drain the nodes that are removed: the API does not respond", "Cluster", m.name)
			return nil
		}
	}
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	for _, index := range surplus {
		name := node.Name(index)
		m.describe("Draining the node " + name)
		if err := drainNode(ctx, client, name); err != nil {
			return fmt.Errorf("remove the node %s: %w", name, err)
		}
	}
	return nil
}

func drainNode(ctx context.Context, client kubernetes.Interface, name string) error {
	found, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	isReady := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if !slices.ContainsFunc(found.Status.Conditions, isReady) {
		return nil
	}
	if err := drain.Check(ctx, client, name, nil); err != nil { // volumes stay on the host, and come back with the node
		return err
	}
	if !found.Spec.Unschedulable {
		if err := patchNode(ctx, client, name, `{"metadata":{"annotations":{"`+drainedAnnotation+`":""}},"spec":{"unschedulable":true}}`); err != nil {
			return err
		}
	}
	return drain.Node(ctx, client, name, drainTimeout)
}

// drainedAnnotation is on a node that was schedulable before it was drained.
const drainedAnnotation = "clusterprovisioner.rke.io/drained-for-removal"

func patchNode(ctx context.Context, client kubernetes.Interface, name, patch string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// uncordonNodes makes nodes schedulable that were drained for their removal and are wanted again. Nodes that a user has cordoned stay so.
func uncordonNodes(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range nodes.Items {
		if _, drained := n.Annotations[drainedAnnotation]; drained {
			errs = append(errs, patchNode(ctx, client, n.Name, `{"metadata":{"annotations":{"`+drainedAnnotation+`":null}},"spec":{"unschedulable":null}}`))
		}
	}
	return errors.Join(errs...)
}

// restoreNodes does so for the real nodes of a cluster that runs.
func (e *Engine) restoreNodes(ctx context.Context, m *member) error {
	if indexes, err := controlplane.NodeIndexes(e.dir(m.uid)); err != nil || len(indexes) == 0 {
		return err
	}
	config, err := controlplane.AdminConfig(e.dir(m.uid))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	m.mu.Lock()
	draining := m.draining
	m.mu.Unlock()
	if draining {
		return nil // the operation that drains them starts the control plane again
	}
	return uncordonNodes(ctx, client)
}

// firstNodes returns the state of the nodes of a cluster until they are observed: they start, or nil if they may have been running for
// a long time.
func (e *Engine) firstNodes(m *member, wanted desire) *cluster.Nodes {
	applied, err := readApplied(e.dir(m.uid))
	if err == nil && applied != nil && wanted.isApplied(applied) && e.hasProcesses(m.uid) {
		return nil
	}
	return &cluster.Nodes{}
}

// settleRetry is the pause after nodes did not become ready.
const settleRetry = 10 * time.Second

// settle starts controllers and nodes, which Apply does not wait for, and waits until they are ready. It ends with the control plane or
// the engine.
func (e *Engine) settle(m *member, cp *controlplane.ControlPlane) {
	began := time.Now()
	log := e.opts.Log.WithValues("Cluster", m.name)
	for m.runs(cp) {
		err := cp.Settle(e.ctx)
		if err == nil {
			err = e.restoreNodes(e.ctx, m)
		}
		if e.ctx.Err() != nil || !m.settled(cp, err) {
			return
		}
		e.changed(m.name)
		if err == nil {
			log.V(1).Info("The controllers and nodes of the cluster are ready", "after", time.Since(began))
			return
		}
		log.Error(err, "The controllers or the nodes of the cluster are not ready, will retry", "interval", settleRetry)
		select {
		case <-e.ctx.Done():
			return
		case <-time.After(settleRetry):
		}
	}
}

// runs reports whether a control plane still belongs to the cluster.
func (m *member) runs(cp *controlplane.ControlPlane) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cp == cp
}

// settled records the result of ControlPlane.Settle. It reports whether the control plane still belongs to the cluster.
func (m *member) settled(cp *controlplane.ControlPlane, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cp != cp {
		return false
	}
	m.nodes = &cluster.Nodes{Ready: err == nil}
	if err != nil {
		m.nodes.Problem = err.Error()
	}
	return true
}
