package cluster_test

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// An engine that cannot make credentials anew, such as rke, is left alone, and the condition says so.
func TestARotationThatTheEngineCannotDo(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.outside.Calls()
	c := w.get()
	c.Spec.RotateRequestedAt = ptr.To(timeOf(once))
	if err := w.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if provisioned := w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied); !strings.Contains(provisioned.Message, "has no effect") {
		t.Errorf("message %q", provisioned.Message)
	}
	if c := w.get(); c.Status.LastRotateRequestedAt != nil {
		t.Errorf("lastRotateRequestedAt is %v", c.Status.LastRotateRequestedAt)
	}
	if calls := w.outside.Calls(); len(calls) > 0 {
		t.Errorf("calls of the engine: %v", calls)
	}
}
