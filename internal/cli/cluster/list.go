package cluster

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newList() *cobra.Command {
	var flags target.Flags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters",
		Long:  "List the clusters with the addresses of their APIs. kubectl get clusters has other columns, and other formats.",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open(cmd.Context(), &flags)
			if err != nil {
				return err
			}
			var found v1alpha1.ClusterList
			if err := c.List(cmd.Context(), &found); meta.IsNoMatchError(err) {
				return c.describe("", err)
			} else if err != nil {
				return fmt.Errorf("list the clusters: %w", err)
			}
			if len(found.Items) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No clusters found.")
				return err
			}
			return printClusters(cmd.OutOrStdout(), found.Items, time.Now())
		},
	}
	flags.AddFlags(cmd.Flags())
	return cmd
}

// printClusters prints clusters as a table.
func printClusters(out io.Writer, all []v1alpha1.Cluster, now time.Time) error {
	table := object.NewTable(out, "NAME", "STATUS", "READY", "VERSION", "ENDPOINT", "AGE")
	for i := range all {
		cluster := &all[i]
		ready := string(metav1.ConditionUnknown)
		if condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReady); condition != nil {
			ready = string(condition.Status)
		}
		table.Add(cluster.Name, cmp.Or(cluster.Status.Phase, v1alpha1.PhasePending), ready, cluster.Status.Version, cluster.Status.Endpoint,
			duration.HumanDuration(now.Sub(cluster.CreationTimestamp.Time)))
	}
	return table.Flush()
}
