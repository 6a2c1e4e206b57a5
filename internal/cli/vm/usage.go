package vm

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func newUsage(flags *target.Flags) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "usage NAME",
		Short: "Print what a machine has used in the last hour",
		Long: `Print the last, mean and highest usage of processors, memory, disks and network of a machine in the last hour. With
-o json, print all samples, one every 15 seconds.`,
		Example: "  keelson vm usage web\n  keelson vm usage web -o json",
		Args:    oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return usage.Errorf("--output must be json, not %q", output)
			}
			m, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			found, err := client.ReadUsage(cmd.Context(), m.API.Config, m.API.Namespace, args[0])
			if err != nil {
				return err
			}
			switch {
			case output == "json":
				return object.WriteJSON(cmd.OutOrStdout(), found)
			case len(found.UnixMilliseconds) == 0:
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No usage was measured yet. That takes up to 30 seconds from the start of the machine, or of the manager.")
				return err
			}
			return printUsage(cmd.OutOrStdout(), found)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "`format` of the output: json; a table by default")
	return cmd
}

// printUsage prints usage as a table.
func printUsage(out io.Writer, found *client.MachineUsage) error {
	table := object.NewTable(out, "RESOURCE", "LAST", "MEAN", "MAX")
	for _, row := range []struct {
		name   string
		series client.Series
		text   func(float64) string
	}{
		{"CPU", found.CPUPercent, percentText},
		{"Memory", found.MemoryPercent, percentText},
		{"Memory of the guest", found.GuestMemoryBytes, bytesText},
		{"Memory of the host", found.ResidentBytes, bytesText},
		{"Disk read", found.DiskReadBytesPerSecond, rateText},
		{"Disk written", found.DiskWrittenBytesPerSecond, rateText},
		{"Network received", found.NetworkReceivedBytesPerSecond, rateText},
		{"Network sent", found.NetworkTransmittedBytesPerSecond, rateText},
	} {
		last, mean, most := summarize(row.series)
		table.Add(row.name, row.text(last), row.text(mean), row.text(most))
	}
	err := table.Flush()
	times := found.UnixMilliseconds
	first, last := time.UnixMilli(times[0]), time.UnixMilli(times[len(times)-1])
	_, printErr := fmt.Fprintf(out, "\n%d samples from %s to %s\n", len(times), first.Format(time.TimeOnly), last.Format(time.TimeOnly))
	return errors.Join(err, printErr)
}

// summarize returns the last, the mean and the highest of the known values; NaN if there is none.
func summarize(series client.Series) (last, mean, most float64) {
	last, mean, most = math.NaN(), math.NaN(), math.NaN()
	if len(series) > 0 {
		last = series[len(series)-1]
	}
	var sum float64
	known := 0
	for _, value := range series {
		if math.IsNaN(value) {
			continue
		}
		sum += value
		known++
		if known == 1 || value > most {
			most = value
		}
	}
	if known > 0 {
		mean = sum / float64(known)
	}
	return last, mean, most
}

func percentText(value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", value)
}

func rateText(value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	return bytesText(value) + "/s"
}

// bytesText returns a number of bytes with a binary unit.
func bytesText(value float64) string {
	if math.IsNaN(value) {
		return "-"
	}
	unit := ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "" || value >= 100 {
		return fmt.Sprintf("%.0f %sB", value, unit)
	}
	return fmt.Sprintf("%.1f %sB", value, unit)
}
