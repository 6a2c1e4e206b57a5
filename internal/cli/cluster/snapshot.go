package cluster

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func newSnapshot(flags *target.Flags) *cobra.Command {
	var name string
	c := object.Creation[*v1alpha1.ClusterSnapshot]{Until: snapshotKind.When(isTaken), Check: checkCluster}
	cmd := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "Take, list and delete snapshots of clusters",
		Long: `Take a snapshot of all objects of a cluster while it runs. keelson cluster create --from creates a new cluster
from it. It is kept when the cluster is deleted.`,
		Example: `  keelson cluster snapshot demo --name before --wait
  keelson cluster create copy --from before --wait
  keelson cluster snapshot list
  keelson cluster snapshot delete before`,
		Args: oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			return c.Create(cmd, flags, snapshotKind, newClusterSnapshot(args[0], name, time.Now()))
		},
	}
	c.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the ClusterSnapshot (default: that of the cluster, and the time)")
	c.Waiting.AddFlags(cmd.Flags(), "the snapshot is taken")
	cmd.AddCommand(
		snapshotKind.NewList(flags, "List the snapshots of clusters"), snapshotKind.NewDescribe(flags, "Show snapshots with their events"),
		snapshotKind.NewDelete(flags, object.Deletion[*v1alpha1.ClusterSnapshot]{
			Short: "Delete snapshots of clusters", Example: "  keelson cluster snapshot delete before --wait",
		}),
	)
	return cmd
}

// checkCluster returns an error if the Cluster of a new snapshot does not exist.
func checkCluster(ctx context.Context, o *object.Objects[*v1alpha1.ClusterSnapshot], s *v1alpha1.ClusterSnapshot) error {
	_, err := kind.In(o.Client, o.API).Find(ctx, s.Spec.ClusterName)
	return err
}

// newClusterSnapshot returns the object. Without a name, it gets that of the Cluster and the time in UTC.
func newClusterSnapshot(cluster, name string, now time.Time) *v1alpha1.ClusterSnapshot {
	name = cmp.Or(name, object.TimedName(cluster, now))
	return &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: cluster}}
}

// isTaken reports whether a snapshot is taken.
func isTaken(s *v1alpha1.ClusterSnapshot) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady)
}

// snapshotLine describes the status of a snapshot in a line.
func snapshotLine(s *v1alpha1.ClusterSnapshot) string {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return s.Name + ": the snapshot is not taken yet"
	}
	return s.Name + ": " + strings.Join(strings.Fields(ready.Message), " ")
}
