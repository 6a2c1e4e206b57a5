package crontab

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/names"
)

// timeline are the flags of the command.
type timeline struct {
	from, to, timeZone, format string
	all                        bool
}

// maxDays is the longest interval of a timeline.
const maxDays = 1100

func newTimeline(flags *target.Flags) *cobra.Command {
	t := timeline{timeZone: "UTC"}
	cmd := &cobra.Command{
		Use:   "timeline",
		Short: "Show when the CronTabs of a namespace will run, and when most of them do",
		Long: `Show what the CronTabs of a namespace, or of all, will do: the runs of each hour, the busiest minutes, what H instead of a fixed
minute would change, runs that a change of the clocks affects, and, from the durations of past runs whose Jobs exist, how many
are active at once. CronTabs that are suspended, or stopped after failures, do not count. Nothing is changed.`,
		Example: "  keelson crontab timeline -A\n  keelson crontab timeline --from 2027-01-01 --to 2027-12-31 -o svg > 2027.svg",
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.format != "" && t.format != "json" && t.format != "svg" {
				return usage.Errorf("--output=%s: must be json or svg", t.format)
			}
			zone, from, to, err := t.interval(time.Now())
			if err != nil {
				return err
			}
			c, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			cronTabs, durations, err := c.read(cmd.Context(), t.all)
			if err != nil {
				return err
			}
			if len(cronTabs) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No CronTabs found.")
				return err
			}
			return t.print(cmd.OutOrStdout(), crontab.NewTimeline(cronTabs, from, to, durations), zone)
		},
	}
	cmd.Flags().Var(usage.NonEmpty(&t.from), "from", "first `time`: a date such as 2026-12-24, or a time such as 2026-12-24T08:00 (default: today)")
	cmd.Flags().Var(usage.NonEmpty(&t.to), "to", "last `time`; with a date, all of that day (default: seven days)")
	cmd.Flags().Var(usage.NonEmpty(&t.timeZone), "time-zone", "IANA time `zone` of the output, and of --from and --to")
	cmd.Flags().BoolVarP(&t.all, "all-namespaces", "A", false, "the CronTabs of all namespaces")
	cmd.Flags().StringVarP(&t.format, "output", "o", "", "`format`: json, or svg with a picture (default: text)")
	return cmd
}

// interval returns the zone, and the interval [from, to).
func (t *timeline) interval(now time.Time) (zone *time.Location, from, to time.Time, err error) {
	if zone, err = cron.LoadLocation(t.timeZone); err != nil {
		return nil, from, to, usage.Errorf("--time-zone: %v", err)
	}
	year, month, day := now.In(zone).Date()
	from = time.Date(year, month, day, 0, 0, 0, 0, zone)
	if t.from != "" {
		if from, err = parseTime("from", t.from, zone); err != nil {
			return nil, from, to, err
		}
	}
	to = from.AddDate(0, 0, 7)
	if t.to != "" {
		if to, err = parseTime("to", t.to, zone); err != nil {
			return nil, from, to, err
		}
		if !strings.Contains(t.to, "T") {
			to = to.AddDate(0, 0, 1)
		}
	}
	if !to.After(from) || to.After(from.AddDate(0, 0, maxDays)) {
		return nil, from, to, usage.Errorf("--from and --to: must be at most %d days, the first one first", maxDays)
	}
	return zone, from, to, nil
}

// read returns the CronTabs, and the mean durations of their runs whose Jobs have succeeded.
func (c *cronTabs) read(ctx context.Context, all bool) ([]stablev1.CronTab, map[types.NamespacedName]time.Duration, error) {
	var cronTabs stablev1.CronTabList
	var jobs batchv1.JobList
	in := []client.ListOption{client.InNamespace(c.API.Namespace)}
	if all {
		in = nil
	}
	if err := c.List(ctx, &cronTabs, in...); err != nil {
		return nil, nil, c.Explain("", err)
	}
	if err := c.List(ctx, &jobs, append(in, client.HasLabels{stablev1.NameLabel})...); err != nil {
		return nil, nil, fmt.Errorf("list the Jobs of CronTabs: %w", err)
	}
	return cronTabs.Items, crontab.MeanDurations(jobs.Items), nil
}

func (t *timeline) print(out io.Writer, found crontab.Timeline, zone *time.Location) error {
	switch t.format {
	case "json":
		return object.WriteJSON(out, found)
	case "svg":
		return found.WriteSVG(out, zone)
	}
	layout := "2006-01-02T15:04Z07:00 Mon"
	var text strings.Builder
	fmt.Fprintf(&text, "From:      %s\nTo:        %s\nCronTabs:  %d\nRuns:      %d\n\n", found.From.In(zone).Format(layout), found.To.In(zone).Format(layout), found.CronTabs, found.Runs)
	writeHours(&text, found, zone)
	if len(found.Busiest) > 0 {
		text.WriteString("\nBusiest minutes:\n")
		table := object.NewTable(&text, "TIME", "RUNS", "CRONTABS")
		for _, busy := range found.Busiest {
			table.Add(busy.Time.In(zone).Format(layout), busy.Runs, names.Some(busy.CronTabs))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if spread := found.Spread; spread != nil && len(found.Busiest) > 0 && spread.Runs < found.Busiest[0].Runs {
		fmt.Fprintf(&text, "\nWith H instead of a fixed minute in %s, the busiest minute has %d runs instead of %d.\n", names.Some(spread.CronTabs), spread.Runs, found.Busiest[0].Runs)
	}
	if len(found.Clocks) > 0 {
		text.WriteString("\nChanges of the clocks:\n")
		table := object.NewTable(&text, "TIME", "CRONTAB", "TIMES", "WHAT")
		for _, run := range found.Clocks {
			table.Add(run.Time.Format(layout), run.CronTab, run.Count, run.Note)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if found.MostActive > 1 {
		fmt.Fprintf(&text, "\nIf runs last as long as before, up to %d are active at once, first at %s.\n", found.MostActive, found.MostActiveAt.In(zone).Format(layout))
	}
	for _, overlap := range found.Overlaps {
		fmt.Fprintf(&text, "A run of %s lasts %s, and the next one can be due after %s.\n", overlap.CronTab, duration.HumanDuration(overlap.Duration.Duration), duration.HumanDuration(overlap.Interval.Duration))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// shades are the cells of the text, for more and more runs.
var shades = []string{" ", "·", "░", "▒", "▓", "█"}

// writeHours writes the runs of each hour, a row for each day, or for each week of a long interval.
func writeHours(out io.Writer, found crontab.Timeline, zone *time.Location) {
	h := crontab.NewHeat(found, zone, len(found.Hours) > 31*24)
	fmt.Fprintf(out, "%-14s  0     3     6     9     12    15    18    21\n", "Runs per hour")
	for _, d := range h.Days {
		fmt.Fprintf(out, "%-14s  ", d.Date.Format("Mon 2006-01-02"))
		for _, runs := range d.Hours {
			fmt.Fprint(out, shades[shadeOf(runs, h.Most)], " ")
		}
		fmt.Fprintln(out)
	}
	row := ""
	if h.Weeks {
		row = " A row is a week, with its busiest day for each hour."
	}
	fmt.Fprintf(out, "%s is up to %d runs.%s\n", shades[len(shades)-1], h.Most, row)
}

// shadeOf returns the index of the shade for a number of runs; only none has the first one.
func shadeOf(runs, most int) int {
	if runs == 0 {
		return 0
	}
	return 1 + (runs*(len(shades)-1)-1)/most
}
