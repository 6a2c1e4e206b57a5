// Package vm is the command `keelson vm`: VirtualMachines and their images.
package vm

import (
	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// New returns the command. builder builds images; nil where that is not possible.
func New(builder *Builder) *cobra.Command {
	flags := &target.Flags{}
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Create, control and access VirtualMachines",
		Long: `Create, control and access VirtualMachines. Access to consoles and ports goes through the Kubernetes API, with your
permissions.

` + target.Help(),
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.AddFlags(cmd.PersistentFlags())
	flags.AddNamespace(cmd.PersistentFlags())
	cmd.AddCommand(
		newCreate(flags), machineKind.NewList(flags, "List machines with their addresses"), machineKind.NewDescribe(flags, "Show machines with their events"),
		newConsole(flags), newSSH(flags), newSCP(flags), newPortForward(flags), newLogs(flags), newScreenshot(flags), newUsage(flags),
		newSnapshot(flags), newFork(flags), newRestore(flags), newImage(flags, builder),
		machineKind.NewDelete(flags, object.Deletion[*v1alpha1.VirtualMachine]{
			Short: "Delete machines", Long: "Delete machines, and their disks unless the disks have deletePolicy: Retain. VirtualDisks and snapshots are kept.",
			Example: "  keelson vm delete web db --wait",
		}),
	)
	for _, v := range verbs() {
		cmd.AddCommand(machineKind.NewVerb(flags, v))
	}
	completeNames(cmd)
	return cmd
}

func newImage(flags *target.Flags, builder *Builder) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build, add, list and delete VirtualMachineImages",
		Long: `Build, add, list and delete VirtualMachineImages: disk images that VirtualMachines of all namespaces
name in spec.image.name.`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if builder != nil {
		cmd.AddCommand(builder.newBuild(flags))
	}
	cmd.AddCommand(newAdd(flags), imageKind.NewList(flags, "List the images"), imageKind.NewDescribe(flags, "Show images with their events"), newRemove(flags))
	complete.Arguments(imageKind.Resource, cmd.Commands()...)
	return cmd
}
