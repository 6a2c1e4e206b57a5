// Package kubeconfig is the command `keelson kubeconfig`.
package kubeconfig

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Clusters are the names of Clusters, for completion.
var Clusters = complete.Resource{GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("clusters")}

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
	cmd.ValidArgsFunction = complete.Names(Clusters)
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
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s; is Keelson running? `%s` shows it: %w", report.Server, instance.Command("status", dir), err)
	}
	return OfCluster(ctx, c, args[0])
}

// OfCluster returns the kubeconfig of a Cluster.
func OfCluster(ctx context.Context, c client.Client, name string) ([]byte, error) {
	var cluster v1alpha1.Cluster
	err := c.Get(ctx, client.ObjectKey{Name: name}, &cluster)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Cluster %q; keelson cluster list lists them", name)
	}
	if err != nil {
		return nil, fmt.Errorf("get Cluster %s: %w", name, err)
	}
	ref := cluster.Status.KubeconfigRef
	if ref == nil || ref.SecretRef == nil {
		return nil, fmt.Errorf("there is no kubeconfig of Cluster %s yet; kubectl describe cluster %[1]s has the reason", name)
	}
	var secret corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.SecretRef.Namespace, Name: ref.SecretRef.Name}, &secret); err != nil {
		return nil, fmt.Errorf("get the kubeconfig of Cluster %s: %w", name, err)
	}
	text := secret.Data[cmp.Or(ref.SecretRef.Key, v1alpha1.SecretKey)]
	if !metav1.IsControlledBy(&secret, &cluster) || len(text) == 0 {
		// The name alone does not tell whose it is: a user of another Cluster may have a Secret of this name.
		return nil, fmt.Errorf("the Secret %s/%s has no kubeconfig of Cluster %s; the condition KubeconfigAvailable in `kubectl describe cluster %[3]s` has the reason",
			secret.Namespace, secret.Name, name)
	}
	return text, nil
}
