package cluster

import (
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newRestore(flags *target.Flags) *cobra.Command {
	var snapshot string
	var requested metav1.Time
	keep := true
	cmd := kind.NewVerb(flags, object.Verb[*v1alpha1.Cluster]{
		Name: "restore", One: true,
		Short: "Replace the objects of a cluster by those of a snapshot",
		Long: `Replace all objects of a cluster with those of one of its snapshots. The cluster restarts; its address,
kubeconfigs and users stay valid. A snapshot of the current objects is taken first; its name
is in status.restore.previous of the Cluster: restore that one to undo the restore.`,
		Example: `  keelson cluster restore demo --snapshot before --wait

  # One that does not start any more
  keelson cluster restore demo --snapshot before --keep-current=false`,
		Past: "restore requested",
		Change: func(cluster *v1alpha1.Cluster, now time.Time) {
			cluster.Spec.Restore = object.NewRestore(snapshot, keep, now, cluster.Spec.Restore, cluster.Status.Restore)
			requested = cluster.Spec.Restore.RequestedAt
		},
		Until: "the cluster is restored and ready",
		Look:  func(cluster *v1alpha1.Cluster) (bool, string, error) { return isRestored(cluster, requested) },
	})
	cmd.Use = "restore NAME --snapshot SNAPSHOT"
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if snapshot == "" {
			return usage.Errorf("--snapshot is required: the name of a ClusterSnapshot of the cluster, see keelson cluster snapshot list")
		}
		return nil
	}
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`name` of a ClusterSnapshot of the cluster")
	cmd.Flags().BoolVar(&keep, "keep-current", true, "take a ClusterSnapshot of the current objects first; the cluster must run for that")
	return cmd
}

// isRestored reports whether a restore is done and the cluster is ready, otherwise what it waits for.
func isRestored(cluster *v1alpha1.Cluster, requested metav1.Time) (bool, string, error) {
	r := object.Restore{Noun: "cluster", Name: cluster.Name, Generation: cluster.Generation, Conditions: cluster.Status.Conditions}
	if done := cluster.Status.Restore; done != nil && done.RequestedAt.Equal(&requested) {
		r.Ended, r.Failed, r.Message = true, done.Result == commonv1.RestoreFailed, done.Message
	}
	complete, waitsFor, err := r.IsComplete()
	if complete && !isReady(cluster) {
		return false, describeStatus(cluster), nil
	}
	return complete, waitsFor, err
}
