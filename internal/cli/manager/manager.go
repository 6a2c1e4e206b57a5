// Package manager is the command `keelson manager`.
package manager

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	versioncmd "github.com/keelson-dev/keelson/internal/cli/version"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/systemd"
	"github.com/keelson-dev/keelson/internal/version"
)

const long = `Run the controllers against a Kubernetes API: the cluster of the kubeconfig or, in a
Pod, the cluster that the Pod runs in.

Before it starts, the manager checks that the API serves the resources of its
controllers and grants all permissions they need. Otherwise it lists what is missing,
prints the manifest that grants it, and exits. On SIGTERM it waits for running
reconciles and releases its Lease.`

const examples = `  # Against the cluster of the current kubeconfig context
  keelson manager

  # All controllers except one, in two namespaces
  keelson manager --controllers=*,-foo --namespaces=team-a,team-b

  # Grant the permissions first
  keelson manifests crds | kubectl apply --server-side -f -
  keelson manifests rbac --user=system:serviceaccount:keelson:manager | kubectl apply -f -`

// New returns the command.
func New() *cobra.Command {
	options := manager.NewOptions()
	options.KubeBinary, options.NodePrograms = instance.KubeBinary, instance.NodePrograms
	var printVersion bool
	cmd := &cobra.Command{
		Use:     "manager",
		Short:   "Run the controllers against a cluster",
		Long:    long,
		Example: examples,
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printVersion {
				return versioncmd.Print(cmd.OutOrStdout(), "text", version.Get())
			}
			if err := options.ReadConfig(cmd.Flags()); err != nil {
				return usage.Errorf("%w", err)
			}
			return run(cmd.Context(), cmd, options)
		},
	}
	cmd.Flags().SortFlags = false
	options.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&printVersion, "version", false, "print the version and exit")
	return cmd
}

func run(ctx context.Context, cmd *cobra.Command, options manager.Options) error {
	if err := options.Validate(); err != nil {
		return usage.Errorf("%w", err)
	}
	options.Logger = options.Logging.NewLogger(cmd.ErrOrStderr())
	if err := options.Logging.InstallLogger(options.Logger); err != nil {
		return err
	}
	if warning := systemd.Warning(ctx); warning != "" {
		options.Logger.Info(warning)
	}
	cfg, err := options.RESTConfig()
	if err != nil {
		return err
	}
	return manager.Run(ctx, cfg, options)
}
