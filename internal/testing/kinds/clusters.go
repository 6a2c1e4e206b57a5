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

// Components is how many processes a local cluster has.
const Components = 5

const (
	// secretNamespace is where a manager keeps the kubeconfigs of clusters, if it is not told otherwise.
	secretNamespace = rbac.Home
	// sanSuffix ends the names of a cluster that changes ask for.
	sanSuffix = ".example.com"
)

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
		differs("Cluster %s does not say where its kubeconfig is", object.Name)
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
		differs("Cluster %s is served under the names %v, and asks for %v", object.Name, names, wanted)
	}
}

// servedNames returns which names that changes have asked for are in the certificate of the API to which a kubeconfig leads.
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
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // it is asked again
	defer cancel()
	connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }() // it was only looked at
	served := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return slices.DeleteFunc(served.DNSNames, func(name string) bool { return !strings.HasSuffix(name, sanSuffix) }), nil
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
