package vm

import (
	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/complete"
)

// completeNames completes the names of machines in the commands below vm.
func completeNames(vm *cobra.Command) {
	for _, cmd := range vm.Commands() {
		switch cmd.Name() {
		case "create":
			cmd.ValidArgsFunction = cobra.NoFileCompletions // a new name
			complete.Flag(cmd, "image", cobra.ShellCompDirectiveDefault, func(cmd *cobra.Command, prefix string) []string {
				return complete.Objects(cmd, imageKind.Resource, prefix) // without one, paths
			})
			complete.Flag(cmd, "snapshot", cobra.ShellCompDirectiveNoFileComp, completeSnapshots)
		case "restore", "fork":
			complete.Flag(cmd, "snapshot", cobra.ShellCompDirectiveNoFileComp, completeSnapshots)
		case "scp":
			cmd.ValidArgsFunction = completeSCP
		case "snapshot":
			complete.Arguments(snapshotKind.Resource, cmd.Commands()...)
		}
	}
	complete.Arguments(machineKind.Resource, vm.Commands()...)
}

func completeSnapshots(cmd *cobra.Command, prefix string) []string {
	return complete.Objects(cmd, snapshotKind.Resource, prefix)
}

// completeSCP completes NAME:PATH with the names of machines, and files of this host.
func completeSCP(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	for _, name := range complete.Objects(cmd, machineKind.Resource, prefix) {
		names = append(names, name+":")
	}
	if len(names) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveNoSpace
}
