// Package vm is the command `keelson vm`: images of VirtualMachines.
package vm

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Build and register disk images of VirtualMachines",
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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
	cmd.AddCommand(image)
	return cmd
}

// target selects the API with the images: that of an instance on this host, or of a kubeconfig.
type target struct {
	instance.Flags
	kubeconfig string
}

func (t *target) addFlags(cmd *cobra.Command) {
	t.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&t.kubeconfig, "kubeconfig", "", "`path` of the kubeconfig of another cluster with Keelson (default: Keelson on this host)")
}

// client returns a client of the API.
func (t *target) client(ctx context.Context) (client.Client, error) {
	config, err := t.config(ctx)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // otherwise controller-runtime complains in a command that runs for long
	// Without the API's warnings, which this program causes itself.
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return c, nil
}

func (t *target) config(ctx context.Context) (*rest.Config, error) {
	if t.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", t.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read --kubeconfig: %w", err)
		}
		return config, nil
	}
	dir, err := t.Dir()
	if err != nil {
		return nil, err
	}
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	if !report.APIReady {
		return nil, &notRunningError{dir}
	}
	return controlplane.AdminConfig(dir)
}

// notRunningError means that no instance runs in a data directory.
type notRunningError struct{ dir string }

// Error implements error.
func (e *notRunningError) Error() string {
	return fmt.Sprintf("Keelson is not running in %s: `%s` starts it; or set --data-dir or --kubeconfig", e.dir, instance.Command("up", e.dir))
}
