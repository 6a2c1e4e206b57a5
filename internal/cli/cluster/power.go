package cluster

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// newRun returns the command that starts clusters, or the one that stops them.
func newRun(flags *target.Flags, running bool) *cobra.Command {
	v := object.Verb[*v1alpha1.Cluster]{
		Name: "start", Past: "starting", Short: "Start clusters that are stopped", Example: "  keelson cluster start demo --wait",
		Change: func(cluster *v1alpha1.Cluster, _ time.Time) { cluster.Spec.Running = &running },
		Until:  "the clusters are ready", Look: lookReady,
	}
	if !running {
		v.Name, v.Past, v.Short, v.Example = "stop", "stopping", "Stop clusters, and keep their data", "  keelson cluster stop demo --wait"
		v.Until, v.Look = "the clusters are stopped", kind.When(isStopped)
	}
	return kind.NewVerb(flags, v)
}

// isStopped reports whether a Cluster is stopped as its spec says.
func isStopped(cluster *v1alpha1.Cluster) bool {
	return cluster.Status.ObservedGeneration == cluster.Generation && cluster.Status.Phase == v1alpha1.PhaseStopped
}

func newUpgrade(flags *target.Flags) *cobra.Command {
	version := ""
	cmd := kind.NewVerb(flags, object.Verb[*v1alpha1.Cluster]{
		Name: "upgrade", Past: "upgrading", Short: "Upgrade clusters to another Kubernetes version",
		Long: `Upgrade clusters to another Kubernetes version, one minor version at a time. keelson cluster rehearse tells before
what the upgrade would refuse or warn of; a snapshot is the way back.`,
		Example: `  keelson cluster snapshot demo --name before --wait
  keelson cluster upgrade demo --version v1.36.3 --wait`,
		Change: func(cluster *v1alpha1.Cluster, _ time.Time) { cluster.Spec.Version = version },
		Until:  "the clusters are ready with the version", Look: lookReady,
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if version == "" {
			return usage.Errorf("--version is required: a Kubernetes version such as v1.36.3; keelson cluster versions lists those of this host")
		}
		return nil
	}
	cmd.Flags().StringVar(&version, "version", "", "Kubernetes `version`, such as v1.36.3")
	return cmd
}
