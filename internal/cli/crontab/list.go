package crontab

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	controller "github.com/keelson-dev/keelson/internal/controller/crontab"
)

func newList() *cobra.Command {
	var f flags
	all := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List CronTabs with their next runs",
		Long:  "List the CronTabs of a namespace with their next runs. kubectl get crontabs has other columns, and other formats.",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			var found stablev1.CronTabList
			var options []client.ListOption
			if !all {
				options = append(options, client.InNamespace(c.namespace))
			}
			if err := c.List(cmd.Context(), &found, options...); meta.IsNoMatchError(err) {
				return c.describe("", err)
			} else if err != nil {
				return fmt.Errorf("list the CronTabs: %w", err)
			}
			if len(found.Items) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No CronTabs found.")
				return err
			}
			return printCronTabs(cmd.OutOrStdout(), found.Items, all, time.Now())
		},
	}
	f.addTo(cmd)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the CronTabs of all namespaces")
	return cmd
}

// printCronTabs prints CronTabs as a table, with their namespaces or without.
func printCronTabs(out io.Writer, all []stablev1.CronTab, namespaces bool, now time.Time) error {
	table := object.NewNamespacedTable(out, namespaces, "NAME", "SCHEDULE", "STATUS", "ACTIVE", "LAST RESULT", "NEXT", "AGE")
	for i := range all {
		cronTab := &all[i]
		result := ""
		if run := cronTab.Status.LastRun; run != nil {
			result = string(run.Result)
		}
		table.AddOf(cronTab, Schedules(cronTab), State(cronTab), cronTab.Status.ActiveCount, result,
			cronTab.Status.NextScheduleLocalTime, duration.HumanDuration(now.Sub(cronTab.CreationTimestamp.Time)))
	}
	return table.Flush()
}

// Schedules returns the schedules of a CronTab for display.
func Schedules(cronTab *stablev1.CronTab) string {
	text := string(cronTab.Spec.Schedule)
	for _, schedule := range cronTab.Spec.Schedules {
		if text != "" {
			text += "; "
		}
		text += string(schedule)
	}
	return text
}

// State returns the state of a CronTab in a word: the reason of its condition Ready.
func State(cronTab *stablev1.CronTab) string {
	if ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return "Pending"
}

func newNext() *cobra.Command {
	var f flags
	count := 10
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "Print the next scheduled times of a CronTab",
		Long: `Print the next scheduled times of a CronTab, in its time zone. They are computed from the spec; with
jitterSeconds a run starts later.`,
		Example: `  keelson crontab next backup --count 3`,
		Args:    oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > 1000 {
				return usage.Errorf("--count=%d: must be from 1 to 1000", count)
			}
			c, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			cronTab, err := c.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			runs, err := controller.NextRuns(cronTab, time.Now(), count)
			if err != nil {
				return fmt.Errorf("CronTab %s/%s: %w", c.namespace, cronTab.Name, err)
			}
			if ptr.Deref(cronTab.Spec.Suspend, false) {
				fmt.Fprintf(cmd.ErrOrStderr(), "CronTab %s is suspended: no scheduled run starts until keelson crontab resume %s.\n", cronTab.Name, f.words(cronTab.Name))
			}
			if len(runs) == 0 {
				return fmt.Errorf("no time of the schedule of CronTab %s/%s is to come", c.namespace, cronTab.Name)
			}
			for _, run := range runs {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), run.Format("2006-01-02T15:04:05Z07:00 Mon")); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.addTo(cmd)
	cmd.Flags().IntVar(&count, "count", count, "`number` of times")
	return cmd
}
