package vm

import (
	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
)

var (
	machineResource = complete.Resource{GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("virtualmachines"), Namespaced: true}
	imageResource   = complete.Resource{GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("virtualmachineimages")}
)

// completeNames completes the names of machines in the commands below vm, and those of images in the ones below image.
func completeNames(vm, image *cobra.Command) {
	for _, cmd := range append(vm.Commands(), image.Commands()...) {
		switch cmd.Name() {
		case "create":
			cmd.ValidArgsFunction = cobra.NoFileCompletions // a new name
			complete.Flag(cmd, "image", cobra.ShellCompDirectiveDefault, func(cmd *cobra.Command, prefix string) []string {
				return complete.Objects(cmd, imageResource, prefix) // without one, paths
			})
		case "add":
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		case "build":
			cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"debian"}, cobra.ShellCompDirectiveNoFileComp)
		case "scp":
			cmd.ValidArgsFunction = completeSCP
		}
	}
	complete.Arguments(machineResource, vm.Commands()...)
	complete.Arguments(imageResource, image.Commands()...)
}

// completeSCP completes NAME:PATH with the names of machines, and files of this host.
func completeSCP(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	for _, name := range complete.Objects(cmd, machineResource, prefix) {
		names = append(names, name+":")
	}
	if len(names) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names, cobra.ShellCompDirectiveNoSpace
}
