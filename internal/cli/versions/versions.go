// Package versions is the command `keelson cluster versions`: the Kubernetes versions that Clusters of this host can have.
package versions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/engine/local"
)

// New returns the command.
func New(flags *target.Flags) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "versions",
		Short: "List the Kubernetes versions that Clusters can have",
		Long: `List the Kubernetes versions whose components are on this host, for spec.version of Clusters of the engine
local, and the Clusters that use them.

A version is a program keelson-kube-VERSION beside keelson-kube, which has the default version. In a
checkout of Keelson, make kube KUBE_VERSION=v1.35.4 builds one. A running manager uses it at once.`,
		Example: `  keelson cluster versions
  keelson cluster create old --version v1.35.4`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage.Errorf("--output=%s: must be text or json", output)
			}
			main, err := instance.KubeBinary()
			if err != nil {
				return err
			}
			installed, err := local.Installed(cmd.Context(), main)
			if err != nil {
				return err
			}
			clusters, err := findClusters(cmd.Context(), flags)
			if wrong := (*usage.Error)(nil); errors.As(err, &wrong) {
				return err
			}
			list := newList(installed, clusters, err)
			if output == "json" {
				return object.WriteJSON(cmd.OutOrStdout(), list)
			}
			if err := list.print(cmd.OutOrStdout()); err != nil {
				return err
			}
			return list.explain(cmd.ErrOrStderr(), main)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

// queryTimeout limits the request for the Clusters.
const queryTimeout = 5 * time.Second

// findClusters returns the Clusters of the selected API.
func findClusters(ctx context.Context, flags *target.Flags) ([]v1alpha1.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	c, _, err := flags.Client(ctx, v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	var found v1alpha1.ClusterList
	if err := c.List(ctx, &found); err != nil {
		return nil, fmt.Errorf("list the Clusters: %w", err)
	}
	return found.Items, nil
}

// list is the output.
type list struct {
	Versions []version `json:"versions"`
	// ClustersUnknown tells why the Clusters are not known. Empty if they are.
	ClustersUnknown string `json:"clustersUnknown,omitempty"`
}

type version struct {
	local.Components
	// Clusters are the names of the Clusters that have the version.
	Clusters []string `json:"clusters"`
}

func newList(installed []local.Components, clusters []v1alpha1.Cluster, unknown error) list {
	all := list{Versions: []version{}}
	if unknown != nil {
		all.ClustersUnknown = unknown.Error()
	}
	for _, components := range installed {
		v := version{Components: components, Clusters: []string{}}
		for i := range clusters {
			c := &clusters[i]
			if c.Spec.EngineOrDefault() == v1alpha1.EngineLocal && c.Status.Version == components.Version {
				v.Clusters = append(v.Clusters, c.Name)
			}
		}
		slices.Sort(v.Clusters)
		all.Versions = append(all.Versions, v)
	}
	return all
}

// print prints the list as a table.
func (l list) print(out io.Writer) error {
	table := object.NewTable(out, "VERSION", "DEFAULT", "ETCD", "CLUSTERS", "PROGRAM")
	for _, v := range l.Versions {
		isDefault := "no"
		if v.Default {
			isDefault = "yes"
		}
		table.Add(v.Version, isDefault, v.Etcd, l.describeClusters(v), v.Program)
	}
	return table.Flush()
}

func (l list) describeClusters(v version) string {
	switch {
	case l.ClustersUnknown != "":
		return "unknown"
	case len(v.Clusters) == 0:
		return "-"
	}
	return strings.Join(v.Clusters, ",")
}

// explain prints what the table does not say.
func (l list) explain(out io.Writer, main string) error {
	text := ""
	for _, v := range l.Versions {
		if v.Problem != "" {
			text += fmt.Sprintf("%s cannot be used: %s\n", v.Version, v.Problem)
		}
	}
	if l.ClustersUnknown != "" {
		text += "The Clusters are unknown: " + l.ClustersUnknown + "\n"
	}
	text += fmt.Sprintf("To add a version, build it in a checkout of Keelson with `make kube KUBE_VERSION=v1.35.4`, and put bin/keelson-kube-v1.35.4 into %s\n", filepath.Dir(main))
	_, err := io.WriteString(out, text)
	return err
}
