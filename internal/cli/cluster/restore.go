package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/kube"
)

func newRestore() *cobra.Command {
	var flags target.Flags
	var waits object.Waiting
	var snapshot string
	keep := true
	cmd := &cobra.Command{
		Use:   "restore NAME --snapshot SNAPSHOT",
		Short: "Replace the objects of a cluster by those of a snapshot",
		Long: `Replace all objects of a cluster by those of one of its snapshots. The cluster restarts; its address,
kubeconfigs and users stay valid. The present objects are kept in another snapshot first, whose name
is in status.restore.previous of the Cluster: restore that one to undo the restore.`,
		Example: `  keelson cluster restore demo --snapshot before --wait

  # One that does not start any more
  keelson cluster restore demo --snapshot before --keep-current=false`,
		Args: oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if snapshot == "" {
				return usage.Errorf("--snapshot is required: the name of a ClusterSnapshot of the cluster, see kubectl get clustersnapshots")
			}
			c, err := open(cmd.Context(), &flags)
			if err != nil {
				return err
			}
			cluster, err := c.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			changed := cluster.DeepCopy()
			changed.Spec.Restore = newClusterRestore(cluster, snapshot, keep, time.Now())
			if err := c.Patch(cmd.Context(), changed, client.MergeFrom(cluster)); err != nil {
				return c.describe(args[0], err)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "cluster.%s/%s restore requested\n", v1alpha1.GroupName, args[0]); err != nil || !waits.Wait {
				return err
			}
			requested := changed.Spec.Restore.RequestedAt
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) {
				return c.isRestored(ctx, args[0], requested)
			})
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`name` of a ClusterSnapshot of the cluster")
	cmd.Flags().BoolVar(&keep, "keep-current", true, "keep the present objects in a ClusterSnapshot first; the cluster must run for that")
	waits.AddFlags(cmd.Flags(), "the cluster is restored and ready")
	return cmd
}

// newClusterRestore returns a new request.
func newClusterRestore(cluster *v1alpha1.Cluster, snapshot string, keep bool, now time.Time) *v1alpha1.ClusterRestore {
	var used []*metav1.Time
	if cluster.Spec.Restore != nil {
		used = append(used, &cluster.Spec.Restore.RequestedAt)
	}
	if cluster.Status.Restore != nil {
		used = append(used, &cluster.Status.Restore.RequestedAt)
	}
	r := &v1alpha1.ClusterRestore{Snapshot: snapshot, RequestedAt: kube.NextRequest(now, used...)}
	if !keep {
		r.KeepCurrent = &keep
	}
	return r
}

// isRestored reports whether a restore is done and the cluster is ready, otherwise what it waits for.
func (c *clusters) isRestored(ctx context.Context, name string, requested metav1.Time) (bool, string, error) {
	cluster, err := c.get(ctx, name)
	if err != nil {
		return false, "", err
	}
	r := object.Restore{Noun: "cluster", Name: name, Generation: cluster.Generation, Conditions: cluster.Status.Conditions}
	if done := cluster.Status.Restore; done != nil && done.RequestedAt.Equal(&requested) {
		r.Ended, r.Failed, r.Message = true, done.Result == v1alpha1.RestoreFailed, done.Message
	}
	complete, waitsFor, err := r.IsComplete()
	if complete && !isReady(cluster) {
		return false, describeStatus(cluster), nil
	}
	return complete, waitsFor, err
}
