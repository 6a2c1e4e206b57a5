// Package vm is the command `keelson vm`: VirtualMachines and their images.
package vm

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Create, control and access VirtualMachines",
		Long: `Create, control and access VirtualMachines. Access to consoles and ports goes through the Kubernetes API, with your
permissions.

` + target.Help,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	image := &cobra.Command{
		Use:   "image",
		Short: "Build, add, list and remove VirtualMachineImages",
		Long: `Build, add, list and remove VirtualMachineImages: disk images that VirtualMachines of all namespaces
name in spec.image.name.`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	image.AddCommand(newBuild(), newAdd(), newList(), newRemove())
	cmd.AddCommand(newCreate(), newListMachines(), newConsole(), newSSH(), newSCP(), newPortForward(), newLogs(), newScreenshot(), newUsage(), newSnapshot(), newFork(), newRestore(), image)
	for _, v := range verbs() {
		cmd.AddCommand(newVerb(v))
	}
	completeNames(cmd, image)
	return cmd
}

// newClient returns a client of the machines and images of an API.
func newClient(ctx context.Context, flags *target.Flags) (client.Client, *target.API, error) {
	return flags.Client(ctx, v1alpha1.AddToScheme)
}
