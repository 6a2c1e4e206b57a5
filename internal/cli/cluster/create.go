package cluster

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// createFlags describe a new Cluster.
type createFlags struct {
	version      string
	address      string
	port         int32
	nodes        int32
	certSANs     []string
	expiresAfter time.Duration
	idleAfter    time.Duration
	protected    bool
	rkeConfig    string
	from         string
	schedule     string
	keep         int32
	object.Creation[*v1alpha1.Cluster]
}

func newCreate(flags *target.Flags) *cobra.Command {
	var c createFlags
	c.Until = lookReady
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a cluster",
		Long: `Create a cluster: a control plane on the host of the manager with a simulated node; with --nodes,
with real nodes; or with --rke-config, a cluster on the hosts of an RKE configuration.`,
		Example: `  keelson cluster create demo --wait
  keelson cluster kubeconfig demo --merge

  # With two nodes that run Pods
  keelson cluster create demo --nodes 2 --wait
  keelson node image load --cluster demo app.tar

  # One for a test, which is deleted after an hour
  keelson cluster create preview --expires-after 1h

  # One that is stopped while nobody uses it
  keelson cluster create demo --idle-stop-after 30m

  # From a snapshot, which keelson cluster snapshot takes
  keelson cluster create copy --from before --wait

  # With a snapshot each night, of which the last 14 are kept
  keelson cluster create demo --snapshot-schedule "0 3 * * *" --snapshot-keep 14

  # Only print the manifest
  keelson cluster create demo --dry-run=client -o yaml`,
		Args: oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			cluster, err := c.cluster(args[0])
			if err != nil {
				return err
			}
			if err := c.Create(cmd, flags, kind, cluster); err != nil || c.DryRun() {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Use it with: %s kubeconfig %s --merge\n", cmd.Parent().CommandPath(), flags.Words(cluster.Name))
			return err
		},
	}
	c.addFlags(cmd.Flags())
	c.Waiting.AddFlags(cmd.Flags(), "the cluster is ready")
	return cmd
}

func (c *createFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.version, "version", "", "Kubernetes `version`, such as v1.36.3 (default: the newest that the manager has)")
	fs.StringVar(&c.address, "api-address", "", "`address` of the host of the manager at which the API listens (default: 127.0.0.1)")
	fs.Int32Var(&c.port, "api-port", 0, "port of the API on the host of the manager; 0: any free one")
	fs.Int32Var(&c.nodes, "nodes", 0, "number of real nodes on the host of the manager, which run Pods (default: none, but a simulated node)")
	fs.StringArrayVar(&c.certSANs, "cert-san", nil, "`name` or address in the certificate of the API; may be repeated")
	fs.DurationVar(&c.idleAfter, "idle-stop-after", 0, "time without a client after which the cluster is stopped until the next one connects, such as 30m (default: never)")
	fs.DurationVar(&c.expiresAfter, "expires-after", 0, "time after which the cluster is deleted, such as 8h (default: never)")
	fs.BoolVar(&c.protected, "deletion-protection", false, "prevent the deletion of the cluster")
	fs.StringVar(&c.from, "from", "", "`name` of a ClusterSnapshot, whose objects the cluster gets")
	fs.StringVar(&c.schedule, "snapshot-schedule", "", "`schedule` of snapshots in cron format and in UTC, such as \"0 3 * * *\" (default: none)")
	fs.Int32Var(&c.keep, "snapshot-keep", commonv1.DefaultSnapshotsKept, "number of snapshots of the schedule that are kept")
	fs.StringVar(&c.rkeConfig, "rke-config", "", "`path` of an RKE cluster.yml on the host of the manager, instead of a control plane on that host")
	c.AddFlags(fs)
}

// maxNodes is the limit of spec.nodes.real.
const maxNodes = 32

func (c *createFlags) validate() error {
	switch {
	case c.rkeConfig != "" && (c.version != "" || c.address != "" || c.port != 0 || c.nodes != 0 || c.from != "" || c.schedule != "" || len(c.certSANs) > 0):
		return usage.Errorf("--rke-config cannot be combined with --version, --nodes, --from, --snapshot-schedule, --api-address, --api-port and --cert-san: the file has the settings of the cluster")
	case c.nodes < 0 || c.nodes > maxNodes:
		return usage.Errorf("--nodes=%d: must be from 1 to %d", c.nodes, maxNodes)
	case c.port < 0 || c.port > 65535:
		return usage.Errorf("--api-port=%d: must be from 1024 to 65535", c.port)
	case c.keep < 1:
		return usage.Errorf("--snapshot-keep=%d: must be at least 1", c.keep)
	case c.keep != commonv1.DefaultSnapshotsKept && c.schedule == "":
		return usage.Errorf("--snapshot-keep goes with --snapshot-schedule")
	case c.idleAfter != 0 && (c.rkeConfig != "" || c.nodes != 0):
		return usage.Errorf("--idle-stop-after cannot be combined with --rke-config and --nodes: it is for clusters with simulated nodes")
	case c.idleAfter != 0 && c.idleAfter < time.Minute || c.idleAfter != c.idleAfter.Truncate(time.Second):
		return usage.Errorf("--idle-stop-after=%v: must be a number of seconds, minutes or hours, at least 1m", c.idleAfter)
	case c.expiresAfter < 0 || c.expiresAfter != c.expiresAfter.Truncate(time.Second):
		return usage.Errorf("--expires-after=%v: must be a number of seconds, minutes or hours, such as 8h", c.expiresAfter)
	}
	return c.Validate()
}

// cluster returns the object.
func (c *createFlags) cluster(name string) (*v1alpha1.Cluster, error) {
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cluster.Spec.Version, cluster.Spec.DeletionProtection = c.version, c.protected
	if c.rkeConfig != "" {
		path, err := filepath.Abs(c.rkeConfig)
		if err != nil {
			return nil, err
		}
		cluster.Spec.ConfigPath = path
	}
	if c.address != "" || c.port != 0 || len(c.certSANs) > 0 {
		cluster.Spec.APIServer = &v1alpha1.APIServer{Address: c.address, Port: c.port, CertSANs: c.certSANs}
	}
	if c.nodes > 0 {
		cluster.Spec.Nodes = &v1alpha1.ClusterNodes{Real: &c.nodes}
	}
	if c.from != "" {
		cluster.Spec.From = &v1alpha1.ClusterSource{Snapshot: c.from}
	}
	if c.schedule != "" {
		cluster.Spec.Snapshots = &commonv1.SnapshotSchedule{Schedule: c.schedule, Keep: &c.keep}
	}
	if c.idleAfter > 0 {
		cluster.Spec.Idle = &v1alpha1.ClusterIdle{StopAfter: metav1.Duration{Duration: c.idleAfter}}
	}
	if c.expiresAfter > 0 {
		cluster.Spec.ExpiresAfter = &metav1.Duration{Duration: c.expiresAfter}
	}
	return cluster, nil
}
