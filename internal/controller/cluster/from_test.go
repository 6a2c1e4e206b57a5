package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// A Cluster with spec.from waits for its snapshot, and says what is wrong with it.
func TestClusterOfASnapshot(t *testing.T) {
	w := newWorld(t)
	w.create(func(c *v1alpha1.Cluster) { c.Spec.From = &v1alpha1.ClusterSource{Snapshot: w.name} })
	waits := func(says string) {
		t.Helper()
		w.pass(20 * time.Second)
		w.settle()
		if c := w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonSnapshotNotAvailable); !strings.Contains(c.Message, says) {
			t.Errorf("the message is %q, want %q", c.Message, says)
		}
	}
	waits("there is no ClusterSnapshot " + w.name)
	s := &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: "other"}}
	w.do(w.client.Create(t.Context(), s))
	t.Cleanup(func() { w.do(w.client.Delete(context.WithoutCancel(t.Context()), s)) })
	waits("is not taken yet")
	ready := func(status metav1.ConditionStatus, message string) {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: "Test", Message: message})
		w.do(w.client.Status().Update(t.Context(), s))
	}
	ready(metav1.ConditionFalse, "no space")
	waits("no space")
	ready(metav1.ConditionTrue, "")
	w.pass(20 * time.Second)
	w.settle()
	if last := w.get().Status.LastOperation; last == nil || last.Type != v1alpha1.OperationProvision {
		t.Errorf("the last operation is %+v", last)
	}
}
