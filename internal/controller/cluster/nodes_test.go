package cluster_test

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
)

// nodes sets what the engine reports about the nodes.
func (w *world) nodes(nodes *cluster.Nodes) {
	w.Helper()
	w.outside.Change(w.get().UID, func(c *fake.Cluster) *fake.Cluster {
		c.Nodes = nodes
		return c
	})
	w.settle()
}

func TestNodesReady(t *testing.T) {
	const name = v1alpha1.ConditionNodesReady
	w := newWorld(t)
	w.made(func(c *v1alpha1.Cluster) { c.Spec.Nodes = &v1alpha1.ClusterNodes{Real: ptr.To[int32](2)} })
	w.nodes(&cluster.Nodes{})
	w.expect(name, "False", v1alpha1.ReasonStarting)
	w.nodes(&cluster.Nodes{Problem: "real nodes: node-2 is not ready"})
	if is := w.expect(name, "False", v1alpha1.ReasonNodesNotReady); !strings.Contains(is.Message, "node-2 is not ready") {
		t.Errorf("the message is %q", is.Message)
	}
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable) // the API has not changed
	w.nodes(&cluster.Nodes{Ready: true})
	w.expect(name, "True", v1alpha1.ReasonAvailable)

	w.restart() // the next manager has not looked at them yet
	w.nodes(nil)
	w.expect(name, "True", v1alpha1.ReasonAvailable)

	w.outside.Hold(func(fake.Call) bool { return true })
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Nodes.Real = ptr.To[int32](3) })
	w.nodes(&cluster.Nodes{Ready: true}) // those of before
	w.expect(name, "False", v1alpha1.ReasonStarting)
	w.outside.Hold(nil)
	w.outside.End(w.get().UID, nil)
	w.settle()
	w.expect(name, "True", v1alpha1.ReasonAvailable)

	w.run(false)
	w.settle()
	w.expect(name, "False", v1alpha1.ReasonStopped)
}
