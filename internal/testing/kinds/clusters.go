package kinds

import (
	"context"
	"crypto/tls"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterprovisionerv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// Components is the number of processes of a local cluster.
const Components = 5

const (
	// secretNamespace is the manager's default namespace for the kubeconfigs of clusters.
	secretNamespace = rbac.Home
	// sanSuffix is the suffix of the cluster names that changes add.
	sanSuffix = ".example.com"
)

// CreateClusters creates n Clusters, each with its own control plane on this machine. They cost
// more than all other objects, so n is small and they change more rarely. The managers must be
// started with StateDir as their --state-dir.
func (w *World) CreateClusters(t testing.TB, n int) {
	t.Helper()
	w.create(t, n, cluster)
}

// StateDir returns a state directory for the managers on this machine. Its processes end with the
// test, after managers that are started later.
func (w *World) StateDir(t testing.TB) string {
	t.Helper()
	if w.stateDir == "" {
		w.stateDir = t.TempDir()
		t.Cleanup(func() {
			if _, err := local.StopAll(t.Context(), manager.ClusterDir(w.stateDir)); err != nil { // the context has ended, so this kills
				t.Errorf("stop the clusters: %v", err)
			}
		})
	}
	return w.stateDir
}

// compareCluster compares the processes of a cluster and its kubeconfig with the object.
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
	if running != Components {
		differs("Cluster %s has %d processes: %v", object.Name, running, statuses)
	}
	var kubeconfigs []*clusterprovisionerv1alpha1.Kubeconfig
	var secrets []*corev1.Secret
	for _, child := range children {
		switch child := child.(type) {
		case *clusterprovisionerv1alpha1.Kubeconfig:
			kubeconfigs = append(kubeconfigs, child)
		case *corev1.Secret:
			secrets = append(secrets, child)
		}
	}
	if len(kubeconfigs) != 1 || len(secrets) != 1 || len(children) != 2 {
		differs("Cluster %s has %d children, of them %d Kubeconfigs and %d Secrets", object.Name, len(children), len(kubeconfigs), len(secrets))
		return
	}
	ref := object.Status.KubeconfigRef
	if ref == nil || ref.SecretRef == nil || ref.SecretRef.Namespace != secrets[0].Namespace || ref.SecretRef.Name != secrets[0].Name {
		differs("Cluster %s has no kubeconfig in its status", object.Name)
		return
	}
	names, err := servedNames(t.Context(), secrets[0].Data[clusterprovisionerv1alpha1.SecretKey])
	if err != nil {
		differs("Cluster %s cannot be reached with its kubeconfig: %v", object.Name, err)
		return
	}
	var wanted []string
	if object.Spec.APIServer != nil {
		wanted = object.Spec.APIServer.CertSANs
	}
	if !slices.Equal(names, wanted) {
		differs("Cluster %s is served under the names %v, want %v", object.Name, names, wanted)
	}
}

// servedNames returns the names with sanSuffix in the certificate of the API that a kubeconfig
// points to.
func servedNames(ctx context.Context, data []byte) ([]string, error) {
	access, err := kubeconfig.Parse(data)
	if err != nil {
		return nil, err
	}
	config, err := rest.TLSConfigFor(access.Config)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(access.Server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // the caller retries
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }() // it was only read
	served := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return slices.DeleteFunc(served.DNSNames, func(name string) bool { return !strings.HasSuffix(name, sanSuffix) }), nil
}

// compareHost finds the leftovers of deleted clusters.
func (w *World) compareHost(t testing.TB, objects []client.Object, differs func(string, ...any)) {
	t.Helper()
	there := map[types.UID]bool{}
	for _, object := range objects {
		there[object.GetUID()] = true
	}
	entries, err := os.ReadDir(manager.ClusterDir(w.stateDir))
	if err != nil {
		differs("list the clusters on this machine: %v", err)
	}
	for _, entry := range entries {
		if uid := types.UID(entry.Name()); !there[uid] {
			differs("leftover of a deleted cluster: %s", uid)
		}
	}
	// Also finds processes whose files no longer exist.
	for _, uid := range w.clusters {
		if !there[uid] && controlplane.Remains(filepath.Join(manager.ClusterDir(w.stateDir), string(uid))) {
			differs("leftover files or processes of the deleted cluster %s", uid)
		}
	}
}
