// Package restore is the command `keelson restore`.
package restore

import (
	"fmt"
	"time"

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
		Use:   "restore FILE",
		Short: "Restore a data directory from a backup",
		Long: `Restore a data directory from a file of ` + "`keelson backup`" + `, on this host or another one. The next
` + "`keelson up`" + ` starts with its objects. The data directory must be empty or not exist. If the
restore fails, it leaves no data directory.`,
		Example: `  keelson down
  mv ~/.local/share/keelson ~/.local/share/keelson.old
  keelson restore keelson-monday.backup
  keelson up`,
		Args: usage.OneArg("FILE", "a file of `keelson backup`"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			return run(cmd, dir, args[0])
		},
	}
	flags.AddDataDir(cmd.Flags())
	return cmd
}

func run(cmd *cobra.Command, dir, file string) error {
	report, err := controlplane.Inspect(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if report.ManagerPID != 0 || report.Running() {
		return fmt.Errorf("keelson is running in %s: stop it with `%s` and move that directory away, or choose another with --data-dir",
			dir, instance.Command("down", dir))
	}
	binary, err := instance.KubeBinary()
	if err != nil {
		return err
	}
	mark := func(dir string) error { return instance.Secure(cmd.Context(), dir, false) }
	manifest, err := backup.Restore(cmd.Context(), file, dir, binary, mark)
	if err != nil {
		return fmt.Errorf("restore %s: %w", dir, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Restored all objects and %d local Clusters of %s to %s. `%s` starts them.\n",
		manifest.Clusters, manifest.Created.Format(time.RFC3339), dir, instance.Command("up", dir))
	return err
}
