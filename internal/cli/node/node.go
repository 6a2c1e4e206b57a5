// Package node is the command `keelson node`: it adds and removes real nodes, and powers them off and on, for tests of failures.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	imagecmd "github.com/keelson-dev/keelson/internal/cli/image"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	realnode "github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

const long = `List the real nodes of Keelson on this host, add and remove them, and power them off and on, to test how
workloads survive the failure of a node. ` + "`keelson up --node=real --nodes=3`" + ` starts three of them.`

// stopTimeout is longer than a node takes to stop its Pods, and startTimeout than it takes to become ready again.
const (
	stopTimeout  = time.Minute
	startTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "List, add and remove real nodes, power them off and on, and load images",
		Long:  long,
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(imagecmd.New(), newList(), newAdd(), newRemove(),
		newPower("stop", "Shut a node down: its Pods end gracefully",
			`Shut a real node down, and return when it is off. Its Pods get SIGTERM first. It stays off, also after a
restart of Keelson, until `+"`keelson node start`"+`. To move the Pods to other nodes before, use kubectl drain.`,
			func(ctx context.Context, n target) error { return n.powerOff(ctx, syscall.SIGTERM) }),
		newPower("kill", "Power a node off, as if the power failed",
			`Kill a real node with everything that runs on it. It stays off until `+"`keelson node start`"+`. Kubernetes notices
after 40 seconds and replaces the Pods five minutes later, or as soon as the Node is deleted or has the taint
node.kubernetes.io/out-of-service.`,
			func(ctx context.Context, n target) error { return n.powerOff(ctx, syscall.SIGKILL) }),
		newPower("start", "Start a node that is off",
			`Start a real node that is off, and return when it is Ready.`,
			func(ctx context.Context, n target) error { return n.powerOn(ctx) }))
	return cmd
}

// target is a node of a data directory.
type target struct {
	data  string
	index int
}

func (n target) name() string { return realnode.Name(n.index) }
func (n target) dir() string  { return realnode.Dir(n.data, n.index) }

// newPower returns a command for one node.
func newPower(verb, short, long string, do func(context.Context, target) error) *cobra.Command {
	var flags instance.Flags
	cmd := &cobra.Command{
		Use:   verb + " NAME",
		Short: short,
		Long:  long,
		Args:  usage.OneArg("NAME", "the name of a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := open(cmd.Context(), &flags, args[0])
			if err != nil {
				return err
			}
			if err := do(cmd.Context(), n); err != nil {
				return fmt.Errorf("%s %s: %w", verb, n.name(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "node/%s %s\n", n.name(), map[string]string{"stop": "stopped", "kill": "killed", "start": "started"}[verb])
			return err
		},
	}
	flags.AddFlags(cmd.Flags())
	return cmd
}

// inspect returns the report of a data directory with real nodes.
func inspect(ctx context.Context, data string) (controlplane.Report, error) {
	report, err := controlplane.Inspect(ctx, data)
	if err != nil {
		return report, err
	}
	if report.ManagerPID == 0 {
		return report, fmt.Errorf("Keelson does not run in %s: `%s --node=real` starts it", data, instance.Command("up", data)) //nolint:staticcheck // a name
	}
	if report.RealNodes == 0 {
		return report, fmt.Errorf("no real node runs in %s: `%s --node=real` starts one, after `%s`", data, instance.Command("up", data), instance.Command("down", data))
	}
	return report, nil
}

// open returns a node of a data directory whose Keelson runs.
func open(ctx context.Context, flags *instance.Flags, name string) (target, error) {
	data, err := flags.Dir()
	if err != nil {
		return target{}, err
	}
	report, err := inspect(ctx, data)
	if err != nil {
		return target{}, err
	}
	return find(report, name)
}

// find returns the node with this name.
func find(report controlplane.Report, name string) (target, error) {
	var names []string
	for _, index := range report.NodeIndexes {
		names = append(names, realnode.Name(index))
	}
	i := slices.Index(names, name)
	if i < 0 {
		return target{}, fmt.Errorf("no real node is named %s: choose one of %s", name, strings.Join(names, ", "))
	}
	return target{data: report.Dir, index: report.NodeIndexes[i]}, nil
}

// clientOf returns a client of the administrator of a data directory.
func clientOf(data string) (kubernetes.Interface, error) {
	config, err := controlplane.AdminConfig(data)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// powerOff ends a node with a signal, and has it stay off.
func (n target) powerOff(ctx context.Context, signal syscall.Signal) error {
	if err := realnode.PowerOff(n.dir()); err != nil {
		return err
	}
	pid, err := controlplane.NodePID(n.data, n.index)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return poll(ctx, stopTimeout, "the node still runs", func(context.Context) (bool, error) { return process.IsGone(pid), nil })
}

// powerOn starts a node, and waits until it is ready.
func (n target) powerOn(ctx context.Context) error {
	began := time.Now().Truncate(time.Second)
	pid, err := controlplane.NodePID(n.data, n.index)
	if err != nil {
		return err
	}
	if err := realnode.PowerOn(n.dir()); err != nil {
		return err
	}
	if pid != 0 {
		began = time.Time{} // it runs already
	}
	return n.awaitReady(ctx, began)
}

// awaitReady waits until a node has reported since this time that it is ready.
func (n target) awaitReady(ctx context.Context, began time.Time) error {
	client, err := clientOf(n.data)
	if err != nil {
		return err
	}
	return poll(ctx, startTimeout, "it is not Ready; `"+instance.Command("logs", n.data)+"` shows its log", func(ctx context.Context) (bool, error) {
		object, err := client.CoreV1().Nodes().Get(ctx, n.name(), metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the next attempt may succeed
		}
		ready := condition(object)
		return ready.Status == corev1.ConditionTrue && !ready.LastHeartbeatTime.Time.Before(began), nil
	})
}

func poll(ctx context.Context, timeout time.Duration, otherwise string, done wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, done)
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("after %s, %s", timeout, otherwise)
	}
	return err
}

// condition returns the condition Ready of a Node.
func condition(object *corev1.Node) corev1.NodeCondition {
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{Status: corev1.ConditionUnknown}
}

func newList() *cobra.Command {
	var flags instance.Flags
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short: "List the real nodes",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := flags.Dir()
			if err != nil {
				return err
			}
			report, err := inspect(cmd.Context(), data)
			if err != nil {
				return err
			}
			client, err := clientOf(data)
			if err != nil {
				return err
			}
			nodes, err := client.CoreV1().Nodes().List(cmd.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			return list(cmd.OutOrStdout(), report, nodes.Items)
		},
	}
	flags.AddFlags(cmd.Flags())
	return cmd
}

// list prints the nodes of a report.
func list(w io.Writer, report controlplane.Report, objects []corev1.Node) error {
	table := object.NewTable(w, "NAME", "POWER", "READY", "ADDRESS")
	running := report.RunningNodes()
	for _, index := range report.NodeIndexes {
		n := target{report.Dir, index}
		power, ready, address := "Starting", "Unknown", "<none>"
		switch {
		case realnode.IsBeingRemoved(n.dir()):
			power = "Removing"
		case slices.Contains(running, index):
			power = "On"
		case realnode.IsPoweredOff(n.dir()):
			power = "Off"
		}
		for i := range objects {
			if objects[i].Name == n.name() {
				ready, address = string(condition(&objects[i]).Status), addressOf(&objects[i])
			}
		}
		table.Add(n.name(), power, ready, address)
	}
	return table.Flush()
}

func addressOf(object *corev1.Node) string {
	for _, a := range object.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return "<none>"
}
