// Package status is the command `keelson status`.
package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/up"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/version"
)

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	output := "text"
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of Keelson on this host",
		Long: `Show the status of Keelson on this host, its objects by state, and the location of its files. The exit code is 0
if it runs, its API is ready and etcd has no alarm, otherwise 1.`,
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
			full := instanceReport{Report: report, Version: version.Get().Keelson}
			if full.Process, err = up.ReadProcess(dir, report.ManagerPID); err != nil {
				return err
			}
			var queryErr error
			if report.APIReady {
				full.objects, queryErr = query(cmd.Context(), dir)
			}
			var disksErr error
			full.RetainedDisks, disksErr = qemu.RetainedDisks(manager.MachinesDir(dir))
			var storedErr error
			full.VirtualDisks, storedErr = qemu.StoredDisks(manager.MachinesDir(dir))
			var snapshotsErr error
			full.Snapshots, snapshotsErr = qemu.StoredSnapshots(manager.MachinesDir(dir))
			var networksErr error
			full.Networks, networksErr = qemu.Networks(cmd.Context(), manager.MachinesDir(dir))
			var listErr error
			full.Directories, listErr = instance.Directories()
			// The report comes first: the state of the instance does not depend on the rest.
			if err := errors.Join(print(cmd, output, full), queryErr, disksErr, storedErr, snapshotsErr, networksErr, listErr); err != nil {
				return err
			}
			if report.ManagerPID == 0 || !report.APIReady || report.EtcdAlarm != "" {
				return usage.ErrSilent // the report has the reason
			}
			return nil
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

// instanceReport is the JSON output of the command.
type instanceReport struct {
	controlplane.Report
	objects
	Version       string                 `json:"version"`           // of this program
	Process       *up.Process            `json:"process,omitempty"` // that runs the controllers
	RetainedDisks []backend.RetainedDisk `json:"retainedDisks,omitempty"`
	VirtualDisks  []backend.StoredDisk   `json:"virtualDisks,omitempty"`
	// Snapshots are those of machines.
	Snapshots   []backend.StoredSnapshot `json:"virtualMachineSnapshots,omitempty"`
	Networks    []backend.Network        `json:"networks,omitempty"`    // of machines that are on, of the driver qemu
	Directories []instance.Directory     `json:"directories,omitempty"` // of this user
}

// query asks the API of an instance for its objects.
func query(ctx context.Context, dir string) (objects, error) {
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return objects{}, err
	}
	return queryObjects(ctx, config)
}

func print(cmd *cobra.Command, output string, report instanceReport) error {
	if output == "json" {
		return object.WriteJSON(cmd.OutOrStdout(), report)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), instance.Describe(report.Report, time.Now()), describeObjects(report), describeNetworks(report.Networks), describeVirtualDisks(report.VirtualDisks),
		describeSnapshots(report.Snapshots), describeDisks(report.RetainedDisks), describeDirectories(report.Dir, report.Directories))
	return err
}
