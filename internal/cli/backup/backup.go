// Package backup is the command `keelson backup`.
package backup

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/backup"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up the data of `keelson up` to a file",
		Long: `Back up all objects of Keelson on this host and of its local Clusters to a file, with their
certificates and keys. Everything keeps running. ` + "`keelson restore`" + ` creates a data directory from
the file. The backup contains neither the disks of VirtualMachines nor the images, containers
and volumes of a real node.

The file contains private keys and all Secrets. Anybody who can read it has full access to the clusters.`,
		Example: `  keelson backup keelson-monday.backup`,
		Args:    usage.OneArg("FILE", "the file to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			return run(cmd, dir, args[0])
		},
	}
	flags.AddFlags(cmd.Flags())
	return cmd
}

func run(cmd *cobra.Command, dir, file string) error {
	report, err := controlplane.Inspect(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if !report.Exists {
		return fmt.Errorf("no keelson data in %s: set --data-dir to the data directory", dir)
	}
	binary, err := instance.KubeBinary()
	if err != nil {
		return err
	}
	manifest, err := backup.Save(cmd.Context(), dir, binary, file)
	if err != nil {
		return fmt.Errorf("back up %s: %w", dir, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Saved all objects and %d local Clusters to %s (%.1f MB). It contains private keys and Secrets: protect it.\n",
		manifest.Clusters, file, float64(info.Size())/1e6)
	return err
}
