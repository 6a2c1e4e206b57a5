package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/controlplane"
	realnode "github.com/keelson-dev/keelson/internal/node"
)

func TestFind(t *testing.T) {
	report := controlplane.Report{Dir: "/data", RealNodes: 2, NodeIndexes: []int{0, 1}}
	for name, want := range map[string]int{"keelson-node": 0, "keelson-node-2": 1} {
		if got, err := find(report, name); err != nil || got != (target{"/data", want}) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := find(report, "keelson-node-3"); err == nil || !strings.Contains(err.Error(), "choose one of keelson-node, keelson-node-2") {
		t.Errorf("got %v", err)
	}
}

func TestList(t *testing.T) {
	report := controlplane.Report{Dir: t.TempDir(), RealNodes: 4, NodeIndexes: []int{0, 1, 2, 3}, Components: []controlplane.ComponentReport{
		{Name: "node", State: "Running"}, {Name: "node-2", State: "Exited"}, {Name: "node-3", State: "Exited"}, {Name: "node-4", State: "Running"},
	}}
	off, removed := target{report.Dir, 2}.dir(), target{report.Dir, 3}.dir()
	if err := errors.Join(os.Mkdir(off, 0o700), realnode.PowerOff(off), realnode.RequestRemoval(removed)); err != nil {
		t.Fatal(err)
	}
	objects := []corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "keelson-node"},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "keelson-node"}, {Type: corev1.NodeInternalIP, Address: "10.78.255.2"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}}
	var b strings.Builder
	if err := list(&b, report, objects); err != nil {
		t.Fatal(err)
	}
	const want = `NAME             POWER      READY     ADDRESS
keelson-node     On         True      10.78.255.2
keelson-node-2   Starting   Unknown   <none>
keelson-node-3   Off        Unknown   <none>
keelson-node-4   Removing   Unknown   <none>
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	if err := realnode.PowerOn(off); err != nil || realnode.IsPoweredOff(off) || realnode.PowerOn(off) != nil {
		t.Errorf("the node is still off: %v", err)
	}
	if err := realnode.ConcludeRemoval(removed); err != nil || realnode.IsBeingRemoved(removed) || realnode.ConcludeRemoval(removed) != nil {
		t.Errorf("the node is still removed: %v", err)
	}
}
