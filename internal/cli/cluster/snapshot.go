package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func newSnapshot() *cobra.Command {
	var flags target.Flags
	var waits object.Waiting
	var output object.Output
	var name string
	cmd := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "Take a snapshot of a cluster",
		Long: `Take a snapshot of all objects of a cluster while it runs. A new cluster is made of it with
keelson cluster create --from. It is kept when the cluster is deleted; delete it with
kubectl delete clustersnapshot.`,
		Example: `  keelson cluster snapshot demo --name before --wait
  keelson cluster create copy --from before --wait`,
		Args: oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Validate(); err != nil {
				return err
			}
			taken := newClusterSnapshot(args[0], name, time.Now())
			print := func() error {
				taken.APIVersion, taken.Kind = v1alpha1.SchemeGroupVersion.String(), "ClusterSnapshot" // the client removes them
				return output.Print(cmd.OutOrStdout(), taken, "clustersnapshot", v1alpha1.GroupName)
			}
			if output.DryRun() {
				return print()
			}
			c, err := open(cmd.Context(), &flags)
			if err != nil {
				return err
			}
			if _, err := c.get(cmd.Context(), args[0]); err != nil {
				return err
			}
			if err := c.Create(cmd.Context(), taken); apierrors.IsAlreadyExists(err) {
				return object.Taken(cmd.Context(), c, taken, "ClusterSnapshot "+taken.Name, "kubectl delete clustersnapshot "+taken.Name)
			} else if err != nil {
				return fmt.Errorf("clustersnapshot %s: %w", taken.Name, err)
			}
			if err := print(); err != nil || !waits.Wait {
				return err
			}
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) {
				return c.isTaken(ctx, taken.Name)
			})
		},
	}
	flags.AddFlags(cmd.Flags())
	output.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the ClusterSnapshot (default: that of the cluster, and the time)")
	waits.AddFlags(cmd.Flags(), "the snapshot is taken")
	return cmd
}

// newClusterSnapshot returns the object. Without a name, it gets that of the Cluster and the time in UTC.
func newClusterSnapshot(cluster, name string, now time.Time) *v1alpha1.ClusterSnapshot {
	if name == "" {
		name = object.TimedName(cluster, now)
	}
	return &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: cluster}}
}

// isTaken reports whether a snapshot is taken, otherwise what it waits for.
func (c *clusters) isTaken(ctx context.Context, name string) (bool, string, error) {
	var taken v1alpha1.ClusterSnapshot
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &taken); err != nil {
		return false, "", fmt.Errorf("clustersnapshot %s: %w", name, err)
	}
	ready := meta.FindStatusCondition(taken.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return false, name + ": the snapshot is not taken yet", nil
	}
	return ready.Status == metav1.ConditionTrue, name + ": " + strings.Join(strings.Fields(ready.Message), " "), nil
}
