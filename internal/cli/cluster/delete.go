package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func newDelete() *cobra.Command {
	var flags target.Flags
	var waits object.Waiting
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a cluster with its data",
		Long: `Delete a cluster with its data, and the context that keelson cluster kubeconfig --merge has added to
your kubeconfig.`,
		Example: `  keelson cluster delete demo --wait`,
		Args:    oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd.Context(), &flags)
			if err != nil {
				return err
			}
			cluster, err := c.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			// Not one that was created with this name in the meantime.
			if err := c.Delete(cmd.Context(), cluster, client.Preconditions{UID: &cluster.UID}); err != nil {
				return c.describe(cluster.Name, err)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "cluster/%s deleting\n", cluster.Name); err != nil {
				return err
			}
			if err := unmerge(clientcmd.NewDefaultPathOptions(), cluster.Name, cluster.Status.Endpoint, proxyURL(c.api.Config.Host, cluster.Name)); err != nil || !waits.Wait {
				return err
			}
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) {
				return c.isGone(ctx, cluster)
			})
		},
	}
	flags.AddFlags(cmd.Flags())
	waits.AddFlags(cmd.Flags(), "the cluster is deleted")
	return cmd
}

// isGone reports whether a Cluster is deleted, otherwise what the deletion waits for.
func (c *clusters) isGone(ctx context.Context, deleted *v1alpha1.Cluster) (bool, string, error) {
	var cluster v1alpha1.Cluster
	err := c.Get(ctx, client.ObjectKeyFromObject(deleted), &cluster)
	if apierrors.IsNotFound(err) || err == nil && cluster.UID != deleted.UID {
		return true, "", nil
	}
	return false, describeStatus(&cluster), err
}
