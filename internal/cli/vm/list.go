package vm

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newListMachines() *cobra.Command {
	var flags machineFlags
	all := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List machines with their addresses",
		Long:  "List the machines of a namespace with their addresses. kubectl get vm has other columns, and other formats.",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := flags.open(cmd.Context())
			if err != nil {
				return err
			}
			var found v1alpha1.VirtualMachineList
			var options []client.ListOption
			if !all {
				options = append(options, client.InNamespace(m.namespace))
			}
			if err := m.List(cmd.Context(), &found, options...); err != nil {
				return fmt.Errorf("list the machines: %w", err)
			}
			if len(found.Items) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No machines found.")
				return err
			}
			return printMachines(cmd.OutOrStdout(), found.Items, all, time.Now())
		},
	}
	flags.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the machines of all namespaces")
	return cmd
}

// printMachines prints machines as a table, with their namespaces or without.
func printMachines(out io.Writer, all []v1alpha1.VirtualMachine, namespaces bool, now time.Time) error {
	table := object.NewNamespacedTable(out, namespaces, "NAME", "STATUS", "ADDRESS", "PORTS", "AGE")
	for i := range all {
		vm := &all[i]
		address := ""
		var ports []string
		if server := vm.Status.Server; server != nil {
			if len(server.Addresses) > 0 {
				address = server.Addresses[0]
			}
			for _, endpoint := range server.Endpoints {
				ports = append(ports, endpoint.Name+"="+endpoint.Address)
			}
		}
		table.AddOf(vm, cmp.Or(string(vm.Status.PrintableStatus), "Pending"), address, strings.Join(ports, ","), duration.HumanDuration(now.Sub(vm.CreationTimestamp.Time)))
	}
	return table.Flush()
}
