// Package manifests is the command `keelson manifests`.
package manifests

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/config/admission"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/manager"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the CRDs and permissions that a manager needs",
		Long:  "Print the CRDs and permissions that a manager needs, as YAML for kubectl apply -f -.",
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newAll("crds", "Print the CustomResourceDefinitions of all kinds", crds.All), newRBAC(),
		newAll("admission", "Print the admission policies of all kinds, and their bindings", admission.All), newWebhook(),
	)
	return cmd
}

// newAll returns a command that prints all objects of a kind.
func newAll[T runtime.Object](use, short string, all func() ([]T, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			objects, err := all()
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), objects)
		},
	}
}

func newRBAC() *cobra.Command {
	options := manager.NewOptions()
	var user string
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the roles of the controllers, and their bindings to a user",
		Example: `  # For a service account
  keelson manifests rbac --lease-lock-namespace=keelson --secret-namespace=keelson --user=system:serviceaccount:keelson:manager

  # For a manager that works in two namespaces, without what has no namespace
  keelson manifests rbac --namespaces=team-a,team-b --controllers=*,-cluster,-kubeconfig --user=jane

  # For a manager with the driver pod, which runs VirtualMachines in Pods
  keelson manifests rbac --vm-driver=pod --user=jane`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.Validate(); err != nil {
				return usage.Errorf("%w", err)
			}
			roles, err := manager.Roles(options, user)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), roles)
		},
	}
	flags := cmd.Flags()
	flags.Var(usage.NonEmpty(&user), "user", "bind the roles to this `user` (default: print no bindings)")
	flags.StringSliceVar(&options.Controllers, "controllers", options.Controllers,
		"controllers that will run, as in keelson manager")
	flags.StringSliceVar(&options.Machines.Drivers, "vm-driver", options.Machines.Drivers,
		"`drivers` of VirtualMachines, as in keelson manager: pod needs more permissions than others")
	flags.StringVar(&options.LeaderElection.LockName, "lease-lock-name", options.LeaderElection.LockName,
		"name of the Lease of the leader election")
	flags.StringVar(&options.LeaderElection.LockNamespace, "lease-lock-namespace", options.LeaderElection.LockNamespace,
		"namespace of that Lease (default: keelson-system)")
	options.Webhook.AddFlags(flags)
	options.Access.AddFlags(flags)
	flags.StringVar(&options.Access.ServiceNamespace, "access-service-namespace", options.Access.ServiceNamespace,
		"namespace of that Service and of the Secret with its certificate authority (default: keelson-system)")
	flags.StringVar(&options.SecretNamespace, "secret-namespace", options.SecretNamespace,
		"`namespace` of the Secrets with the kubeconfigs of Clusters (default: keelson-system)")
	options.AddNamespacesFlag(flags)
	return cmd
}

// write prints objects as YAML documents. It omits the status, which only a server sets.
func write[T runtime.Object](w io.Writer, objects []T) error {
	for i, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("convert %T: %w", object, err)
		}
		delete(fields, "status")
		raw, err := yaml.Marshal(fields)
		if err != nil {
			return fmt.Errorf("render %T as YAML: %w", object, err)
		}
		if i > 0 {
			raw = append([]byte("---\n"), raw...)
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}
