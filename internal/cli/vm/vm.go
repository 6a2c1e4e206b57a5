// Package vm is the command `keelson vm`: VirtualMachines and their images.
package vm

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Create, control and access VirtualMachines",
		Long: `Create, control and access VirtualMachines of Keelson on this host, or of another cluster with --kubeconfig
or --context. Access to consoles and ports goes through the Kubernetes API, with your permissions.`,
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
	cmd.AddCommand(newCreate(), newListMachines(), newConsole(), newSSH(), newSCP(), newPortForward(), newLogs(), newScreenshot(), newUsage(), image)
	for _, v := range verbs() {
		cmd.AddCommand(newVerb(v))
	}
	return cmd
}

// newClient returns a client of the machines and images of an API.
func newClient(ctx context.Context, flags *target.Flags) (client.Client, *target.API, error) {
	api, err := flags.API(ctx)
	if err != nil {
		return nil, nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	log.SetLogger(logr.Discard()) // otherwise controller-runtime complains in a command that runs for long
	config := rest.CopyConfig(api.Config)
	config.WarningHandler = rest.NoWarnings{} // this program causes them itself
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return c, api, nil
}
