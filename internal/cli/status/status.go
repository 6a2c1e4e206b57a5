// Package status is the command `keelson status`.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
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

// describeObjects describes the controllers and objects of a running instance; "" for a stopped one.
func describeObjects(r instanceReport) string {
	if r.APIVersion == "" {
		return ""
	}
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "  %-11s %s\n", name, text) }
	b.WriteString("\n")
	line("versions", fmt.Sprintf("keelson %s, Kubernetes %s", r.Version, r.APIVersion))
	if r.Process != nil {
		line("controllers", strings.Join(r.Process.Controllers, ", "))
		if r.Process.MetricsAddress != manager.Off {
			line("metrics", r.Process.MetricsAddress)
		}
	}
	line("machines", describe(r.Machines))
	line("clusters", describe(r.Clusters))
	line("schedules", describe(r.CronTabs))
	return b.String()
}

func print(cmd *cobra.Command, output string, report instanceReport) error {
	if output == "json" {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), instance.Describe(report.Report, time.Now()), describeObjects(report), describeNetworks(report.Networks), describeVirtualDisks(report.VirtualDisks),
		describeSnapshots(report.Snapshots), describeDisks(report.RetainedDisks), describeDirectories(report.Dir, report.Directories))
	return err
}

// describeDirectories lists the data directories other than that of the report; "" if there are none.
func describeDirectories(dir string, directories []instance.Directory) string {
	var b strings.Builder
	for _, d := range directories {
		state, command := "stopped", "up"
		if d.Running {
			state, command = "running", "status"
		}
		if d.Path != dir {
			fmt.Fprintf(&b, "  %s  %s\n", state, instance.Command(command, d.Path))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nOther data directories of this user:\n\n" + b.String()
}

// describeNetworks lists the networks of machines that are on; "" if there are none.
func describeNetworks(networks []backend.Network) string {
	if len(networks) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nNetworks of VirtualMachines:\n\n")
	for _, network := range networks {
		fmt.Fprintf(&b, "  %-24s %s\n", network.Namespace, cmp.Or(network.Error, network.Prefix))
		for _, machine := range network.Machines {
			state := "not connected"
			switch {
			case machine.Leased:
				state = "address in use"
			case machine.Connected:
				state = "connected"
			}
			fmt.Fprintf(&b, "    %-22s %-15s %s\n", machine.Name, machine.Address, state)
			for _, forward := range machine.Forwards {
				fmt.Fprintf(&b, "      %-20s %s to port %d/%s%s\n", forward.Name, forward.Host, forward.Port, forward.Protocol, problem(forward.Error))
			}
		}
	}
	return b.String()
}

// problem returns an error in parentheses; "" if there is none.
func problem(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// describeDisks lists retained disks; "" if there are none.
func describeDisks(disks []backend.RetainedDisk) string {
	if len(disks) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nDisks of deleted VirtualMachines (diskPolicy: Retain, or the object was lost). Delete the files that you do not need:\n\n")
	for _, disk := range disks {
		name := disk.Name
		if disk.Namespace != "" {
			name = disk.Namespace + "/" + name
		}
		fmt.Fprintf(&b, "  %-24s %d MiB of %d MiB  %s\n", cmp.Or(name, "unknown"), mib(disk.AllocatedBytes), mib(disk.VirtualBytes), disk.Path)
	}
	return b.String()
}
