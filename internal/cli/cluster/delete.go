package cluster

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func newDelete(flags *target.Flags) *cobra.Command {
	return kind.NewDelete(flags, object.Deletion[*v1alpha1.Cluster]{
		Short: "Delete clusters with their data",
		Long: `Delete clusters with their data, and the contexts that keelson cluster kubeconfig --merge has added to
your kubeconfig.`,
		Example: "  keelson cluster delete demo --wait",
		After: func(o *object.Objects[*v1alpha1.Cluster], cluster *v1alpha1.Cluster) error {
			return unmerge(clientcmd.NewDefaultPathOptions(), cluster.Name, cluster.Status.Endpoint, proxyURL(o.API.Config.Host, cluster.Name))
		},
	})
}
