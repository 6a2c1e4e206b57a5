// Package status is the command `keelson status`.
package status

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	output := "text"
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what of Keelson runs on this machine",
		Long: `Say what of Keelson runs on this machine, and where its files are. The exit code is 0
when it runs, its API is ready and etcd has raised no alarm, else 1.`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage.Errorf("--output=%s: must be text or json", output)
			}
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			report, err := controlplane.Inspect(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if err := print(cmd, output, report); err != nil {
				return err
			}
			if report.ManagerPID == 0 || !report.APIReady || report.EtcdAlarm != "" {
				return usage.ErrSilent // the report has said it
			}
			return nil
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

func print(cmd *cobra.Command, output string, report controlplane.Report) error {
	if output == "json" {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), instance.Describe(report, time.Now()))
	return err
}
