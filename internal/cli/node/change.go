package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/drain"
	realnode "github.com/keelson-dev/keelson/internal/node"
)

// removeTimeout is longer than Keelson takes to stop a node and to delete its files.
const removeTimeout = 2 * time.Minute

func newAdd() *cobra.Command {
	var flags instance.Flags
	cmd := &cobra.Command{
		Use:   "add [NAME]",
		Short: "Add a real node to a running Keelson",
		Long: `Add a real node, and return when it is Ready. Without a name, it gets the first that is free: nodes are
named keelson-node-2, keelson-node-3 and so on. It gets an equal share of the CPUs and memory of the host; the
other nodes keep theirs until they are started again. Images that were loaded from files must be loaded again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("%s takes at most one NAME, the name of the new node; got %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := flags.Dir()
			if err != nil {
				return err
			}
			report, err := inspect(cmd.Context(), data)
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return errors.New("several real nodes need root")
			}
			if warning := realnode.InotifyWarning(1, 0); warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), warning+".")
			}
			index := -1
			err = controlplane.ChangeNodes(report.Dir, func(indexes []int) ([]int, error) {
				if index, err = freeIndex(indexes, args); err != nil {
					return nil, err
				}
				return append(indexes, index), nil
			})
			if err != nil {
				return err
			}
			n := target{report.Dir, index}
			if err := n.awaitReady(cmd.Context(), time.Now().Truncate(time.Second)); err != nil {
				return fmt.Errorf("add %s: %w", n.name(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "node/%s added\n", n.name())
			return err
		},
	}
	flags.AddFlags(cmd.Flags())
	return cmd
}

// freeIndex returns the index of a new node: the first that is free, or the one of a name.
func freeIndex(indexes []int, names []string) (int, error) {
	for index := range realnode.MaxNodes {
		taken := slices.Contains(indexes, index)
		switch {
		case len(names) == 0 && !taken, len(names) == 1 && names[0] == realnode.Name(index) && !taken:
			return index, nil
		case len(names) == 1 && names[0] == realnode.Name(index):
			return 0, fmt.Errorf("the node %s exists already", names[0])
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("there are %d nodes already, the most that are possible", realnode.MaxNodes)
	}
	return 0, fmt.Errorf("a real node cannot be named %s: choose a name from %s to %s", names[0], realnode.Name(1), realnode.Name(realnode.MaxNodes-1))
}

func newRemove() *cobra.Command {
	var flags instance.Flags
	var force bool
	timeout := 5 * time.Minute
	cmd := &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"},
		Short: "Drain a real node and delete it with its data",
		Long: `Move the Pods of a real node to other nodes, as kubectl drain does, and delete the node with its files. It
refuses to lose Pods without a controller, and volumes that are on the node. The first node cannot be removed.`,
		Args: usage.OneArg("NAME", "the name of a node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := open(cmd.Context(), &flags, args[0])
			if err != nil {
				return err
			}
			if n.index == 0 {
				return fmt.Errorf("%s cannot be removed, because it is the first node: `%s` stops all nodes", n.name(), instance.Command("down", n.data))
			}
			if err := n.remove(cmd.Context(), force, timeout); err != nil {
				return fmt.Errorf("remove %s: %w", n.name(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "node/%s removed\n", n.name())
			return err
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", force, "also lose Pods without a controller, and volumes on the node")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait until the Pods have left the node")
	return cmd
}

// remove drains a node and has it deleted. What is on a node that is off cannot leave it: Kubernetes replaces it when the Node is gone.
func (n target) remove(ctx context.Context, force bool, timeout time.Duration) error {
	client, err := clientOf(n.data)
	if err != nil {
		return err
	}
	if !force {
		volumes, err := drain.Volumes(ctx, client, n.name())
		if err != nil {
			return err
		}
		if err := drain.Check(ctx, client, n.name(), volumes); err != nil {
			return fmt.Errorf("%w, or use --force to lose them", err)
		}
	}
	if !realnode.IsPoweredOff(n.dir()) {
		if err := drain.Node(ctx, client, n.name(), timeout); err != nil {
			return err
		}
	}
	// From here on the control plane does the rest, even if this command is interrupted.
	if err := realnode.RequestRemoval(n.dir()); err != nil {
		return err
	}
	return poll(ctx, removeTimeout, "it is still there; `"+instance.Command("logs", n.data)+"` shows why", func(context.Context) (bool, error) {
		return !realnode.IsBeingRemoved(n.dir()), nil
	})
}
