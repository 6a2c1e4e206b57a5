package manager

import (
	"errors"
	"os"
	"path/filepath"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/controller/cluster/store"
	"github.com/keelson-dev/keelson/internal/controller/kubeconfig"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/hosted"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/engine/rke"
	"github.com/keelson-dev/keelson/internal/node"
)

// clusterNodes is the number of simulated nodes of a local cluster.
const clusterNodes = 1

// ClusterDir returns the directory of the local clusters in a state directory.
func ClusterDir(stateDir string) string { return filepath.Join(stateDir, "clusters") }

// SnapshotDir returns the directory of the ClusterSnapshots in a state directory.
func SnapshotDir(stateDir string) string { return filepath.Join(stateDir, "cluster-snapshots") }

// addCluster adds the controllers of Clusters, with its engines, and of ClusterSnapshots.
func addCluster(mgr ctrl.Manager, options controller.Options, o *Options) error {
	kubeBinary := o.KubeBinary
	if kubeBinary == nil {
		kubeBinary = func() (string, error) { return "", errors.New("this manager has no keelson-kube") }
	}
	onHost := func() (string, error) {
		path, err := kubeBinary()
		return path, o.onHost(err, cluster.Name, kubeconfig.Name)
	}
	addresses, err := parseNetworks(o.ClusterAddresses)
	if err != nil {
		return err
	}
	snapshots := etcdsnapshot.Dir(SnapshotDir(o.StateDir))
	onThisHost := local.New(local.Options{
		Dir: ClusterDir(o.StateDir), Snapshots: snapshots, Binary: onHost, Nodes: clusterNodes, Ephemeral: o.Ephemeral,
		Machine: o.machine(), Layers: node.LayersDir(o.StateDir), Addresses: addresses, Log: o.Logger.WithName("cluster-local"),
	})
	inPods, err := hosted.New(hosted.Options{Config: mgr.GetConfig(), Images: o.ClusterHostedImages, Snapshots: snapshots, Log: o.Logger.WithName("cluster-hosted")})
	if err != nil {
		return err
	}
	clusters := cluster.Options{
		SecretNamespace: o.SecretNamespace,
		Prober:          cluster.NewProber(clock.RealClock{}),
		Engines: map[v1alpha1.Engine]cluster.Engine{
			v1alpha1.EngineLocal:  onThisHost,
			v1alpha1.EngineHosted: inPods,
			v1alpha1.EngineRKE: rke.New(rke.Options{
				Dir: filepath.Join(o.StateDir, "rke"), Binary: o.RKEBinary, ConfigDirs: o.RKEConfigDirs, Timeout: o.RKETimeout,
				Log: o.Logger.WithName("cluster-rke"),
			}),
		},
	}
	o.closers, o.hasClusters = append(o.closers, clusters.Close), true
	files := &etcdsnapshot.Store{Dir: snapshots, Clock: clock.RealClock{}, Engines: map[v1alpha1.Engine]etcdsnapshot.Saver{
		v1alpha1.EngineLocal: onThisHost, v1alpha1.EngineHosted: inPods,
	}}
	if err := snapshot.Add(mgr, options, files); err != nil {
		return err
	}
	if err := o.addSnapshotStore(mgr, options, files); err != nil {
		return err
	}
	return cluster.Add(mgr, options, clusters)
}

// addSnapshotStore adds the controller of the copies of ClusterSnapshots. Without a store, it ends the deletion of those that had one.
func (o *Options) addSnapshotStore(mgr ctrl.Manager, options controller.Options, files store.Files) error {
	copies, err := o.SnapshotStore.Open()
	if err != nil {
		return err
	}
	return store.Add(mgr, options, files, copies)
}

// machine returns the function that looks at this machine for real nodes of Clusters.
func (o *Options) machine() func() (node.Machine, error) {
	return func() (node.Machine, error) {
		if !o.ClusterRealNodes {
			return node.Machine{}, errors.New("this manager allows no real nodes: set clusters.realNodes in its configuration, or leave the field out")
		}
		if o.NodePrograms == nil {
			return node.Machine{}, errors.New("this manager has no programs for real nodes")
		}
		programs, err := o.NodePrograms()
		if err != nil {
			return node.Machine{}, err
		}
		m := node.Look(programs)
		_, _, err = node.Choose(node.Real, m)
		return m, err
	}
}

// clusterRules returns the validation of Clusters, by the engines of this program.
func clusterRules(h hook) admission.Rules[*v1alpha1.Cluster] {
	addresses, _ := parseNetworks(h.ClusterAddresses) // Validate has checked them
	return admission.Rules[*v1alpha1.Cluster]{
		Errors: cluster.NewValidator(map[v1alpha1.Engine]cluster.Rule{
			v1alpha1.EngineLocal:  local.NewRule(addresses),
			v1alpha1.EngineHosted: hosted.NewRule(),
			v1alpha1.EngineRKE:    rke.NewRule(h.RKEConfigDirs),
		}),
	}
}

// kubeconfigRules returns the validation of Kubeconfigs.
func kubeconfigRules(h hook) admission.Rules[*v1alpha1.Kubeconfig] {
	return admission.Rules[*v1alpha1.Kubeconfig]{Errors: kubeconfig.NewValidator(h.SecretNamespace, h.RKEConfigDirs)}
}

// defaultStateDir returns the default of Options.StateDir.
func defaultStateDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/keelson"
	}
	// XDG Base Directory Specification: ignore relative paths.
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "keelson")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "/var/lib/keelson" // the first write reports a missing permission
	}
	return filepath.Join(home, ".local", "state", "keelson")
}
