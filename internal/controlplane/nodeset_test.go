package controlplane

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// newNodes returns a control plane with real nodes that do not run.
func newNodes(t *testing.T, indexes ...int) *ControlPlane {
	t.Helper()
	dir := layout(t.TempDir())
	procs, err := process.Open(dir.processes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = procs.Close() })
	cp := &ControlPlane{dir: dir, procs: procs, opts: Options{RealNode: &node.Machine{}, RealNodes: len(indexes)}, launched: map[string]*component{}}
	if err := writeNodeSet(dir, indexes); err != nil {
		t.Fatal(err)
	}
	for _, index := range indexes {
		s := node.Settings{}.At(string(dir), index)
		if err := os.MkdirAll(filepath.Join(s.Dir, "volumes", "orders"), 0o700); err != nil {
			t.Fatal(err)
		}
		cp.nodes = append(cp.nodes, s)
	}
	return cp
}

func (cp *ControlPlane) requestRemoval(t *testing.T, index int) {
	t.Helper()
	if err := node.RequestRemoval(node.Dir(string(cp.dir), index)); err != nil {
		t.Fatal(err)
	}
}

func TestChooseNodes(t *testing.T) {
	for name, test := range map[string]struct {
		count   int
		removed []int
		want    []int
	}{
		"the first ones":                        {count: 2, want: []int{0, 1}},
		"none that is being removed":            {count: 3, removed: []int{1}, want: []int{0, 2, 3}},
		"the first one, which is never removed": {count: 1, removed: []int{0}, want: []int{0}},
		"fewer, if there are not enough others": {count: node.MaxNodes, removed: []int{2}, want: without(node.MaxNodes, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			cp := newNodes(t, 0, 1, 2)
			cp.opts.RealNodes = test.count
			for _, index := range test.removed {
				cp.requestRemoval(t, index)
			}
			got, adopted, err := cp.chooseNodes()
			if adopted || err != nil {
				t.Errorf("adopted: %v, %v", adopted, err)
			}
			if difference := cmp.Diff(test.want, got); difference != "" {
				t.Error(difference)
			}
		})
	}
}

// without returns all indexes below a number but one.
func without(count, one int) (indexes []int) {
	for index := range count {
		if index != one {
			indexes = append(indexes, index)
		}
	}
	return indexes
}

// TestRemovalContinues has the API fail after each number of requests, and then the program ended: the next one removes what is left.
func TestRemovalContinues(t *testing.T) {
	for requests := 0; ; requests++ {
		cp := newNodes(t, 0, 1)
		client := fake.NewClientset(localVolume("orders", node.Name(1)), localVolume("other", node.Name(0)),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name(0)}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name(1)}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "database"}, Spec: corev1.PodSpec{NodeName: node.Name(1)}})
		left := requests
		client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			left--
			return left < 0, nil, errors.New("the API is away")
		})
		cp.requestRemoval(t, 1)
		first := cp.changeNodes(t.Context(), client)
		if removing := cp.isBeingRemoved(1); removing != (first != nil) {
			t.Fatalf("after %d requests, the removal goes on: %v, although the error is %v", requests, removing, first)
		}
		client.ReactionChain = client.ReactionChain[1:]
		if err := cp.changeNodes(t.Context(), client); err != nil {
			t.Fatalf("after %d requests: %v", requests, err)
		}
		cp.hasOnlyFirst(t, client)
		if first == nil {
			if requests < 4 {
				t.Errorf("only %d requests", requests)
			}
			return
		}
	}
}

// hasOnlyFirst checks that of other nodes nothing is left.
func (cp *ControlPlane) hasOnlyFirst(t *testing.T, client *fake.Clientset) {
	t.Helper()
	indexes, err := NodeIndexes(string(cp.dir))
	if difference := cmp.Diff([]int{0}, indexes); difference != "" || err != nil || cp.hasNode(1) || cp.isBeingRemoved(1) {
		t.Errorf("nodes: %v, %v, %v", indexes, cp.realNodes(), err)
	}
	if _, err := os.Stat(node.Dir(string(cp.dir), 1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
	if difference := cmp.Diff([]string{"PersistentVolume other", "Node " + node.Name(0)}, objects(t.Context(), t, client)); difference != "" {
		t.Error(difference)
	}
}

// objects returns all that there is in the API.
func objects(ctx context.Context, t *testing.T, client *fake.Clientset) (found []string) {
	t.Helper()
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Items {
		found = append(found, "PersistentVolume "+v.Name)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		found = append(found, "Node "+n.Name)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		found = append(found, "Pod "+p.Name)
	}
	return found
}

// localVolume returns a volume that only one node has.
func localVolume(name, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/somewhere"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}},
	}}
}
