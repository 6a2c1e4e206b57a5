// Package kubeconfig is the command `keelson kubeconfig`.
package kubeconfig

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	clustercmd "github.com/keelson-dev/keelson/internal/cli/cluster"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	cmd := &cobra.Command{
		Use:   "kubeconfig [CLUSTER]",
		Short: "Print the kubeconfig of Keelson on this host, or of one of its Clusters",
		Long: `Print the kubeconfig of the administrator of Keelson on this host, or of one of its Clusters. It
contains a private key: anybody who can read it has full access.`,
		Example: `  keelson kubeconfig > keelson.kubeconfig

  # The Cluster demo
  keelson kubeconfig demo > demo.kubeconfig`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage.Errorf("%s takes one CLUSTER; got %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			text, err := find(cmd.Context(), dir, args)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.ValidArgsFunction = complete.Names(clustercmd.Clusters)
	return cmd
}

// find returns the kubeconfig of an instance, or of the Cluster in args.
func find(ctx context.Context, dir string, args []string) ([]byte, error) {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	if !report.Exists {
		return nil, fmt.Errorf("there is no data of keelson in %s: set --data-dir to the data directory", dir)
	}
	if len(args) == 0 {
		return os.ReadFile(report.Kubeconfig)
	}
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return nil, err
	}
	scheme, kinds := runtime.NewScheme(), runtime.NewSchemeBuilder(corev1.AddToScheme, v1alpha1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s; is Keelson running? `%s` shows it: %w", report.Server, instance.Command("status", dir), err)
	}
	return clustercmd.OfCluster(ctx, c, args[0])
}
