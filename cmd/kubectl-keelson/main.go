// Command kubectl-keelson is the client of Keelson for hosts that do not run it: the commands for machines, Clusters and CronTabs of a cluster in
// the kubeconfig, on Linux, macOS and Windows.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	clustercmd "github.com/keelson-dev/keelson/internal/cli/cluster"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	consolecmd "github.com/keelson-dev/keelson/internal/cli/console"
	crontabcmd "github.com/keelson-dev/keelson/internal/cli/crontab"
	"github.com/keelson-dev/keelson/internal/cli/program"
	vmcmd "github.com/keelson-dev/keelson/internal/cli/vm"
)

const long = `The client of Keelson: machines, Clusters and CronTabs of the cluster that the kubeconfig selects.

As kubectl-keelson in PATH it is the plugin "kubectl keelson". Linked as keelson, its commands are those of the documentation.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Run(ctx, newRoot, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command {
	root := program.New("keelson", long)
	root.AddCommand(vmcmd.New(nil), clustercmd.New(), crontabcmd.New(), consolecmd.New())
	complete.Flags(root)
	return root
}
