// Package up is the command `keelson up`: a Kubernetes API on this machine, with Keelson's controllers running on it.
package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/manager/serving"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// options are the flags of the command.
type options struct {
	instance        instance.Flags
	detach          bool
	keepRunning     bool          // at the end, only this process stops
	node            string        // a node.Mode
	machine         *node.Machine // for a real node; nil for simulated ones
	noNode          string        // why there is no real node, for the user
	shortage        string        // what may keep real nodes from becoming ready
	nodes           int
	mergeKubeconfig bool
	noControllers   bool // also without CRDs
	manager         manager.Options
	consolePort     int               // negative for no console
	given           map[string]string // the flags of the instance that were set, by name
	kept            []string          // those of the running instance that were not given, as arguments
	reportFD        int               // descriptor for the events of the background process of --detach
}

const long = `Start a Kubernetes API on this host (etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and a node) with Keelson's controllers. You need not install anything
else. The API listens on loopback only.

The data directory keeps all objects. Ctrl-C or ` + "`keelson down`" + ` stops everything, and the next
` + "`keelson up`" + ` starts it again, also after a crash. This host is the node if it can be one: that needs Linux, a
container runtime, and the programs of ` + "`make node`" + `. Otherwise, the nodes are simulated: Pods
report that they run and Jobs complete, but nothing is executed.`

const examples = `  # In the foreground, until Ctrl-C
  keelson up

  # In the background; the kubeconfig gets a context "keelson" in ~/.kube/config
  keelson up --detach --merge-kubeconfig

  # To try it out: nothing is kept
  keelson up --ephemeral`

// New returns the command.
func New() *cobra.Command {
	o := options{node: string(node.Auto), nodes: 1, manager: Defaults()}
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Start a Kubernetes API with the controllers on this host",
		Long:    long,
		Example: examples,
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags()); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.instance.AddFlags(fs)
	fs.BoolVarP(&o.detach, "detach", "d", false, "run in the background; the command returns when everything is ready")
	fs.BoolVar(&o.keepRunning, "keep-running", false, "leave the API, machines and clusters running when this command stops; the next up adopts them, and down stops them")
	fs.StringVar(&o.node, "node", o.node, "node that runs Pods: real (this host), simulated (nothing is executed), or auto (real if this host can, unless --nodes is set)")
	fs.IntVar(&o.nodes, "nodes", o.nodes, "number of nodes: of simulated ones, or with --node=real of real ones that share this host")
	fs.BoolVar(&o.mergeKubeconfig, "merge-kubeconfig", false, "add the context \"keelson\" to your kubeconfig file")
	fs.StringSliceVar(&o.manager.Controllers, "controllers", o.manager.Controllers, "controllers to run: * enables all, foo enables foo, -foo disables foo")
	fs.BoolVar(&o.noControllers, "no-controllers", false, "start only the Kubernetes API, without Keelson's controllers and CRDs, to install a manager in it")
	fs.IntVar(&o.manager.Threads, "threads", o.manager.Threads, "number of workers of each controller")
	o.manager.AddConfigFlag(fs)
	o.manager.Machines.AddFlags(fs)
	fs.StringVar(&o.manager.Machines.PublishAddress, "vm-publish-address", o.manager.Machines.PublishAddress,
		"`address` of this host at which ports of machines of the driver qemu are forwarded")
	fs.StringVar(&o.manager.MetricsAddress, "metrics-bind-address", o.manager.MetricsAddress, "`host:port` of the controllers' /metrics; 0 disables it")
	fs.IntVar(&o.consolePort, "console-port", 0, "port of the console on loopback; 0: any free one; -1: no console")
	fs.StringVar(&o.manager.RKEBinary, "rke-binary", o.manager.RKEBinary, "the `program` rke, for Clusters with spec.configPath")
	o.manager.SnapshotStore.AddFlag(fs)
	fs.IntVarP(&o.manager.Logging.Verbosity, "v", "v", o.manager.Logging.Verbosity, "verbosity `level` of the logs, 0 to 10")
	fs.IntVar(&o.reportFD, "report-fd", 0, "")
	_ = fs.MarkHidden("report-fd") // the flag exists, so this cannot fail
	return cmd
}

// validate rejects invalid flags and combinations.
func (o *options) validate(given *pflag.FlagSet) error {
	if o.nodes < 0 || o.nodes > 1000 {
		return usage.Errorf("--nodes=%d: must be from 0 to 1000", o.nodes)
	}
	if o.consolePort < -1 || o.consolePort > 65535 {
		return usage.Errorf("--console-port=%d: must be from -1 to 65535", o.consolePort)
	}
	if o.keepRunning && o.instance.Ephemeral {
		return usage.Errorf("--ephemeral removes everything at the end and cannot be combined with --keep-running")
	}
	if !slices.Contains(node.Modes, node.Mode(o.node)) {
		return usage.Errorf("--node=%s: must be auto, real or simulated", o.node)
	}
	if node.Mode(o.node) == node.Real && (o.nodes < 1 || o.nodes > node.MaxNodes) {
		return usage.Errorf("--nodes=%d: must be from 1 to %d with --node=real", o.nodes, node.MaxNodes)
	}
	if o.noControllers {
		for _, name := range []string{"controllers", "threads", "metrics-bind-address"} {
			if given.Changed(name) {
				return usage.Errorf("--%s configures controllers and cannot be combined with --no-controllers", name)
			}
		}
	}
	if err := o.manager.ReadConfig(given); err != nil {
		return usage.Errorf("%w", err)
	}
	if err := o.manager.Validate(); err != nil {
		return usage.Errorf("%w", err)
	}
	return nil
}

// Defaults returns the default options of the manager. It has one replica, so it needs no leader election, and its only user may use
// all files and addresses of the host.
func Defaults() manager.Options {
	m := manager.NewOptions()
	m.Machines.TrustUsers()
	m.RKEConfigDirs, m.ClusterAddresses, m.PingNetworks = confine.Anywhere, []string{"0.0.0.0/0"}, []string{"0.0.0.0/0", "::/0"}
	m.KubeBinary, m.NodePrograms, m.ClusterRealNodes = instance.KubeBinary, instance.NodePrograms, true
	m.HealthAddress, m.MetricsAddress = manager.Off, manager.Off
	// The API server is on this machine, so it can reach this process directly.
	m.Webhook.Address, m.Webhook.Direct = "127.0.0.1:0", true
	m.Access.Address, m.Access.Direct = "127.0.0.1:0", true
	alone := false
	m.LeaderElection.Enabled = &alone
	return m
}

func (o *options) run(ctx context.Context, cmd *cobra.Command) error {
	if o.manager.Config != "" { // another command finds it, too
		path, err := filepath.Abs(o.manager.Config)
		if err != nil {
			return err
		}
		o.manager.Config = path
	}
	o.given = flagsOf(cmd.Flags())
	// Otherwise the end of a reader, as in `keelson up | head`, would kill this process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	dir, err := o.instance.Dir()
	if err != nil {
		return err
	}
	binary, err := instance.KubeBinary()
	if err != nil {
		return err
	}
	if node.Mode(o.node) == node.Real { // an error must not stop an instance that runs
		if err := o.chooseNode(ctx, dir); err != nil {
			return err
		}
	}
	if o.mergeKubeconfig {
		if err := checkMerge(); err != nil {
			return err
		}
	}
	if err := instance.Secure(ctx, dir, o.instance.Ephemeral); err != nil {
		return err
	}
	if err := instance.AwaitEnding(ctx, cmd.ErrOrStderr(), dir); err != nil {
		return err
	}
	if done, err := o.again(ctx, cmd.OutOrStdout(), cmd.Flags(), dir); done || err != nil {
		return err
	}
	if err := o.checkAddresses(); err != nil {
		return err
	}
	if err := o.chooseNode(ctx, dir); err != nil {
		return err
	}
	switch {
	case o.startsBackground():
		return o.startDetached(ctx, cmd, dir)
	case o.reportFD != 0:
		pipe := os.NewFile(uintptr(o.reportFD), "report")
		r := &pipeReporter{w: pipe}
		if err := o.runHere(ctx, dir, binary, r, func() { _ = pipe.Close() }); err != nil {
			r.report(event{Error: err.Error()}) // lost after a successful start, but then the log has it
			return err
		}
		return nil
	default:
		p := startPrinter(cmd.OutOrStdout())
		defer p.stop()
		return o.runHere(ctx, dir, binary, p, p.stop)
	}
}

// checkAddresses checks that the addresses of the console and of the metrics are free before anything starts.
func (o *options) checkAddresses() error {
	addresses := map[string]string{}
	if o.consolePort > 0 {
		addresses["console-port"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(o.consolePort))
	}
	if !o.noControllers && serving.IsOn(o.manager.MetricsAddress) {
		addresses["metrics-bind-address"] = o.manager.MetricsAddress
	}
	for flag, address := range addresses {
		listener, err := serving.Bind(flag, address)
		if err != nil {
			return err
		}
		if err := listener.Close(); err != nil {
			return err
		}
	}
	return nil
}

// alreadyRunning explains what uses a data directory that another process has locked.
func alreadyRunning(ctx context.Context, dir string) error {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return err
	}
	return fmt.Errorf("another keelson uses this data directory. %s\n`%s` stops it; to run a second one, choose another directory with --data-dir",
		instance.Describe(report, time.Now()), instance.Command("down", dir))
}

// isLocked reports whether the error means that another process has locked the data directory.
func isLocked(err error) bool { return errors.Is(err, process.ErrLocked) }
