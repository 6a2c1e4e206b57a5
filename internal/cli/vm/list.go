package vm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
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
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	namespace := func(text string) string {
		if namespaces {
			return text + "\t"
		}
		return ""
	}
	_, err := fmt.Fprintln(table, namespace("NAMESPACE")+"NAME\tSTATUS\tADDRESS\tPORTS\tAGE")
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
		_, printErr := fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\t%s\n", namespace(vm.Namespace), vm.Name, cmp.Or(string(vm.Status.PrintableStatus), "Pending"),
			cmp.Or(address, "-"), cmp.Or(strings.Join(ports, ","), "-"), duration.HumanDuration(now.Sub(vm.CreationTimestamp.Time)))
		err = errors.Join(err, printErr)
	}
	return errors.Join(err, table.Flush())
}
