// Package cluster is the command `keelson cluster`: Kubernetes clusters and their kubeconfigs.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	kubeconfigcmd "github.com/keelson-dev/keelson/internal/cli/kubeconfig"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Create, use and delete Clusters",
		Long:  "Create, use and delete Clusters.\n\n" + target.Help,
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	create := newCreate()
	create.ValidArgsFunction = cobra.NoFileCompletions // a new name
	cmd.AddCommand(create, newKubeconfig(), newList(), newSnapshot(), newRestore(), newRehearse(), newDelete())
	complete.Arguments(kubeconfigcmd.Clusters, cmd.Commands()...)
	return cmd
}

// clusters are the Clusters of an API.
type clusters struct {
	client.Client
	api *target.API
}

func open(ctx context.Context, flags *target.Flags) (*clusters, error) {
	c, api, err := flags.Client(ctx, v1alpha1.AddToScheme, corev1.AddToScheme)
	return &clusters{Client: c, api: api}, err
}

// get returns a Cluster.
func (c *clusters) get(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	var cluster v1alpha1.Cluster
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &cluster); err != nil {
		return nil, c.describe(name, err)
	}
	return &cluster, nil
}

// describe explains an error of a request for a Cluster.
func (c *clusters) describe(name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no Cluster %q; keelson cluster list lists them", name)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s has no Clusters: their definition is not installed", c.api.Name)
	}
	return fmt.Errorf("cluster %s: %w", name, err)
}

// untilReady waits until a Cluster is ready.
func (c *clusters) untilReady(ctx context.Context, name string, timeout time.Duration, progress io.Writer) error {
	return object.Until(ctx, timeout, progress, func(ctx context.Context) (bool, string, error) {
		cluster, err := c.get(ctx, name)
		if err != nil {
			return false, "", err
		}
		return isReady(cluster), describeBlocking(cluster), nil
	})
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
