package local

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A node that the engine drained gets Pods again, and one that a user has cordoned does not.
func TestUncordonNodes(t *testing.T) {
	newNode := func(name string, cordoned bool) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{Unschedulable: cordoned},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
	}
	client := fake.NewClientset(newNode("drained", false), newNode("cordoned", true), newNode("cordoned-and-drained", true), newNode("other", false))
	expect := func(when string, want map[string]bool) {
		t.Helper()
		for name, cordoned := range want {
			n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if n.Spec.Unschedulable != cordoned {
				t.Errorf("%s, the node %s is unschedulable: %t", when, name, n.Spec.Unschedulable)
			}
			if len(n.Annotations) > 0 && when == "uncordoned" {
				t.Errorf("the node %s has %v", name, n.Annotations)
			}
		}
	}
	for range 2 { // once more, as after a timeout
		for _, name := range []string{"drained", "cordoned-and-drained"} {
			if err := drainNode(t.Context(), client, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect("drained", map[string]bool{"drained": true, "cordoned": true, "cordoned-and-drained": true, "other": false})
	if err := uncordonNodes(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	expect("uncordoned", map[string]bool{"drained": false, "cordoned": true, "cordoned-and-drained": true, "other": false})
}
