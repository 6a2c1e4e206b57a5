// Package version is the command `keelson version`.
package version

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/version"
)

// New returns the command.
func New() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of keelson and of its Kubernetes libraries",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Print(cmd.OutOrStdout(), output, version.Get())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "format of the output: text or json")
	return cmd
}

// Print writes info to w in the format "text" or "json". Any other format is a *usage.Error.
func Print(w io.Writer, format string, info version.Info) error {
	switch format {
	case "text":
		_, err := fmt.Fprintf(w, "keelson    %s\ngo         %s\nkubernetes %s\nplatform   %s\n",
			info.Keelson, info.Go, info.Kubernetes, info.Platform)
		return err
	case "json":
		return object.WriteJSON(w, info)
	default:
		return usage.Errorf("--output=%s: must be text or json", format)
	}
}
