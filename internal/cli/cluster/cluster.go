// Package cluster is the command `keelson cluster`: Kubernetes clusters and their kubeconfigs.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

var (
	kind = object.Kind[*v1alpha1.Cluster]{
		Name: "Cluster", Command: "keelson cluster", Resource: Clusters,
		New: func() *v1alpha1.Cluster { return &v1alpha1.Cluster{} }, Types: types, Line: describeStatus,
	}
	snapshotKind = object.Kind[*v1alpha1.ClusterSnapshot]{
		Name: "ClusterSnapshot", Command: "keelson cluster snapshot",
		Resource: complete.Resource{GroupVersionResource: v1alpha1.SchemeGroupVersion.WithResource("clustersnapshots")},
		New:      func() *v1alpha1.ClusterSnapshot { return &v1alpha1.ClusterSnapshot{} }, Types: types, Line: snapshotLine,
	}
)

func types(scheme *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme))
}

// New returns the command. onHost are commands that work on the host of Keelson only.
func New(onHost ...func(*target.Flags) *cobra.Command) *cobra.Command {
	flags := &target.Flags{}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Create, use and delete Clusters",
		Long:  "Create, use and delete Clusters.\n\n" + target.Help(),
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.AddFlags(cmd.PersistentFlags())
	create := newCreate(flags)
	create.ValidArgsFunction = cobra.NoFileCompletions // a new name
	snapshot := newSnapshot(flags)
	cmd.AddCommand(
		create, newKubeconfig(flags), kind.NewList(flags, "List clusters with the addresses of their APIs"), kind.NewDescribe(flags, "Show clusters with their events"),
		newRun(flags, true), newRun(flags, false), newUpgrade(flags), snapshot, newRestore(flags), newRehearse(flags), newDelete(flags),
	)
	for _, more := range onHost {
		cmd.AddCommand(more(flags))
	}
	complete.Arguments(kind.Resource, cmd.Commands()...)
	complete.Arguments(snapshotKind.Resource, snapshot.Commands()...)
	return cmd
}

// clusters are the Clusters of an API.
type clusters struct {
	*object.Objects[*v1alpha1.Cluster]
}

func open(ctx context.Context, flags *target.Flags) (*clusters, error) {
	o, err := kind.Open(ctx, flags)
	return &clusters{o}, err
}

// snapshots are the ClusterSnapshots of the API.
func (c *clusters) snapshots() *object.Objects[*v1alpha1.ClusterSnapshot] {
	return snapshotKind.In(c.Client, c.API)
}

// lookReady waits for a Cluster that is ready.
func lookReady(cluster *v1alpha1.Cluster) (bool, string, error) {
	return isReady(cluster), describeBlocking(cluster), nil
}

// isReady reports whether the spec of a Cluster is applied, its API is ready, its kubeconfig is written, and its real nodes, if
// any, are ready.
func isReady(cluster *v1alpha1.Cluster) bool { return blocking(cluster) == "" }

// blocking returns the first condition of isReady that is not True for the current spec.
func blocking(cluster *v1alpha1.Cluster) string {
	wanted := []string{v1alpha1.ConditionProvisioned, v1alpha1.ConditionReady, v1alpha1.ConditionKubeconfigAvailable}
	if nodes := cluster.Spec.Nodes; nodes != nil && ptr.Deref(nodes.Real, 0) > 0 {
		wanted = append(wanted, v1alpha1.ConditionNodesReady)
	}
	for _, kind := range wanted {
		condition := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != cluster.Generation {
			return kind
		}
	}
	return ""
}

// describeBlocking returns the phase of a Cluster that is not ready in a line, and the condition that it waits for.
func describeBlocking(cluster *v1alpha1.Cluster) string {
	condition := meta.FindStatusCondition(cluster.Status.Conditions, blocking(cluster))
	if condition == nil || condition.ObservedGeneration != cluster.Generation {
		return describe(cluster, "")
	}
	return describe(cluster, fmt.Sprintf("%s is %s: %s", condition.Type, condition.Status, condition.Message))
}

// describeStatus returns the status of a Cluster in a line: the phase, and the message of the condition that explains it.
func describeStatus(cluster *v1alpha1.Cluster) string {
	return describe(cluster, cluster.Status.Message)
}

func describe(cluster *v1alpha1.Cluster, message string) string {
	line := cluster.Name + ": " + cmp.Or(string(cluster.Status.Phase), string(v1alpha1.PhasePending))
	// The causes of a failure may have several lines.
	if message = strings.Join(strings.Fields(message), " "); message != "" {
		line += ": " + message
	}
	return line
}

// oneCluster is the arguments of a command for one Cluster.
func oneCluster() cobra.PositionalArgs { return usage.OneArg("NAME", "the Cluster") }
