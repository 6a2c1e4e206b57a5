package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// Real nodes that the machine cannot run are refused with what it lacks, before anything is made. They are not simulated instead.
func TestWithoutRealNodes(t *testing.T) {
	main := standIn(t, "v1.36.3")
	for _, tt := range []struct {
		name    string
		nodes   v1alpha1.ClusterNodes
		machine func() (node.Machine, error)
		says    string
	}{
		{"a manager without them", v1alpha1.ClusterNodes{Real: ptr.To[int32](1)}, nil, "spec.nodes.real: this manager runs no real nodes"},
		{"a machine that lacks something", v1alpha1.ClusterNodes{Real: ptr.To[int32](1)}, func() (node.Machine, error) {
			m := node.Machine{Root: true, Capabilities: 1<<12 | 1<<21, Cgroups: 2, Nft: "nft"}
			_, _, err := node.Choose(node.Real, m)
			return m, err
		}, "spec.nodes.real: this machine cannot run a real node; missing: runc or crun (a package of that name)"},
		{"several without root", v1alpha1.ClusterNodes{Real: ptr.To[int32](2)}, func() (node.Machine, error) { return node.Machine{}, nil },
			"several real nodes need a manager that runs as root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := local.Options{Dir: t.TempDir(), Nodes: 1, Binary: func() (string, error) { return main, nil }, Machine: tt.machine}
			engine := local.New(opts)
			request := cluster.Request{Name: "refused", UID: "refused", Spec: v1alpha1.ClusterSpec{Nodes: &tt.nodes}}
			err := engine.Apply(t.Context(), request)
			if !errors.Is(err, cluster.ErrUnavailable) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Apply: %v; want %s", err, tt.says)
			}
			if left := left(t, opts.Dir+"/refused"); len(left) > 0 {
				t.Errorf("something was made: %q", left)
			}
			request.Deleting = true
			if _, err := engine.Observe(t.Context(), request); err != nil {
				t.Errorf("Observe of one that is being deleted: %v", err)
			}
		})
	}
}

// The number of nodes changes while a cluster runs.
func TestLongNumberOfNodes(t *testing.T) {
	t.Parallel()
	m := startManaged(t, "nodes-", newOptions(t))
	defer m.end(t)
	for _, number := range []int32{3, 0, 2} {
		harness.Eventually(t, "the number is changed", func() bool {
			c := m.get(t)
			c.Spec.Nodes = &v1alpha1.ClusterNodes{Simulated: &number}
			return m.api.Update(t.Context(), c) == nil
		})
		harness.Eventually(t, "the nodes are ready", func() bool {
			is := meta.FindStatusCondition(m.get(t).Status.Conditions, v1alpha1.ConditionNodesReady)
			return is != nil && is.Status == metav1.ConditionTrue && is.ObservedGeneration == m.get(t).Generation
		})
		data, err := m.user().read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		access, err := kubeconfig.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := kubernetes.NewForConfigOrDie(access.Config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != int(number) {
			t.Errorf("%d nodes, want %d: %v", len(nodes.Items), number, err)
		}
	}
}

// get returns the Cluster as it is.
func (m *managed) get(t *testing.T) *v1alpha1.Cluster {
	t.Helper()
	c := &v1alpha1.Cluster{}
	if err := m.api.Get(t.Context(), client.ObjectKeyFromObject(m.cluster), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A manager that was away does not wait for an API that nothing but itself restarts, to drain nodes that were removed meanwhile.
func TestLongNodesOfAnAPIThatIsDownAreNotDrained(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	request := cluster.Request{Name: "down", UID: "down", Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}}
	first := local.New(opts)
	applyAndWait(t, first, request)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(opts.Dir, string(request.UID))
	if err := errors.Join(os.Mkdir(node.Dir(dir, 1), 0o700), os.WriteFile(filepath.Join(dir, "nodes.json"), []byte("[0,1]"), 0o600)); err != nil {
		t.Fatal(err)
	}
	signalComponent(t, dir, "kube-apiserver", syscall.SIGKILL)
	second := local.New(opts)
	applyAndWait(t, second, request)
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// signalComponent sends a signal to a component of the cluster in a directory.
func signalComponent(t *testing.T, dir, name string, signal syscall.Signal) {
	t.Helper()
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuses {
		if s.ID == name {
			signals.Send(t, s.PID, signal)
			return
		}
	}
	t.Fatalf("the cluster in %s has no %s", dir, name)
}
