package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/manager"
)

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

// section returns lines below a title; "" without lines.
func section(title, lines string) string {
	if lines == "" {
		return ""
	}
	return "\n" + title + ":\n\n" + lines
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
	return section("Other data directories of this user", b.String())
}

// describeNetworks lists the networks of machines that are on; "" if there are none.
func describeNetworks(networks []backend.Network) string {
	var b strings.Builder
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
	return section("Networks of VirtualMachines", b.String())
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
	var b strings.Builder
	for _, disk := range disks {
		name := disk.Name
		if disk.Namespace != "" {
			name = disk.Namespace + "/" + name
		}
		fmt.Fprintf(&b, "  %-24s %d MiB of %d MiB  %s\n", cmp.Or(name, "unknown"), mib(disk.AllocatedBytes), mib(disk.VirtualBytes), disk.Path)
	}
	return section("Disks of deleted VirtualMachines (diskPolicy: Retain, or the object was lost). Delete the files that you do not need", b.String())
}

// describeVirtualDisks lists VirtualDisks; "" if there are none.
func describeVirtualDisks(disks []backend.StoredDisk) string {
	var b strings.Builder
	for _, disk := range disks {
		user := "not attached"
		if disk.AttachedTo != "" {
			user = "attached to " + disk.AttachedTo
		}
		fmt.Fprintf(&b, "  %-24s %d MiB of %d MiB  %s\n", disk.Namespace+"/"+disk.Name, mib(disk.AllocatedBytes), mib(disk.VirtualBytes), user)
	}
	return section("VirtualDisks", b.String())
}

// describeSnapshots lists the snapshots of machines; "" if there are none.
func describeSnapshots(snapshots []backend.StoredSnapshot) string {
	var b strings.Builder
	for _, s := range snapshots {
		fmt.Fprintf(&b, "  %-24s %d MiB  of %s at %s\n", s.Namespace+"/"+s.Name, mib(s.AllocatedBytes), s.Machine, s.TakenAt.UTC().Format(time.RFC3339))
	}
	return section("VirtualMachineSnapshots", b.String())
}

// mib returns a size in MiB, rounded up.
func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }
