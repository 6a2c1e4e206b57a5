package kinds

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterprovisionerv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// components is how many processes a local cluster has.
const components = 5

// CreateClusters creates n Clusters, each of which is a control plane of its own on this machine: they cost more than all
// others, so that there are few, and they are changed more rarely. The managers must be started with StateDir as their
// --state-dir.
func (w *World) CreateClusters(t testing.TB, n int) {
	t.Helper()
	w.create(t, n, cluster)
}

// StateDir returns a directory for what the managers keep on this machine. What runs in it is ended when the test ends,
// after the managers that were started later.
func (w *World) StateDir(t testing.TB) string {
	t.Helper()
	if w.stateDir == "" {
		w.stateDir = t.TempDir()
		t.Cleanup(func() {
			if _, err := local.StopAll(t.Context(), manager.ClusterDir(w.stateDir)); err != nil { // the context has ended: it kills
				t.Errorf("end the clusters: %v", err)
			}
		})
	}
	return w.stateDir
}

// compareCluster compares what runs on this machine, and how it is reached.
func (w *World) compareCluster(t testing.TB, object *clusterprovisionerv1alpha1.Cluster, children []client.Object, differs func(string, ...any)) {
	t.Helper()
	dir := filepath.Join(manager.ClusterDir(w.stateDir), string(object.UID))
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		differs("Cluster %s: %v", object.Name, err)
	}
	running := 0
	for _, status := range statuses {
		if status.State == process.Running {
			running++
		}
	}
	if running != components {
		differs("Cluster %s has %d processes: %v", object.Name, running, statuses)
	}
	if len(children) != 1 {
		differs("Cluster %s has %d Kubeconfigs", object.Name, len(children))
	}
	ref := object.Status.KubeconfigRef
	if ref == nil || ref.SecretRef == nil {
		differs("Cluster %s does not say where its kubeconfig is", object.Name)
		return
	}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: ref.SecretRef.Namespace, Name: ref.SecretRef.Name}, &corev1.Secret{}); err != nil {
		differs("Cluster %s: its kubeconfig: %v", object.Name, err)
	}
}

// compareHost looks for what clusters that are gone have left behind.
func (w *World) compareHost(t testing.TB, objects []client.Object, differs func(string, ...any)) {
	t.Helper()
	there := map[types.UID]bool{}
	for _, object := range objects {
		there[object.GetUID()] = true
	}
	entries, err := os.ReadDir(manager.ClusterDir(w.stateDir))
	if err != nil {
		differs("the clusters on this machine: %v", err)
	}
	for _, entry := range entries {
		if uid := types.UID(entry.Name()); !there[uid] {
			differs("of a cluster that is gone there is still %s", uid)
		}
	}
	// Also processes whose files are gone.
	for _, uid := range w.clusters {
		if !there[uid] && controlplane.Remains(filepath.Join(manager.ClusterDir(w.stateDir), string(uid))) {
			differs("of the cluster %s, which is gone, files or processes are left", uid)
		}
	}
}
