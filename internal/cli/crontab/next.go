package crontab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// next are the flags of the command.
type next struct {
	flags          *target.Flags
	count          int
	from, timeZone string
	file           string
	explain        bool
}

func newNext(flags *target.Flags) *cobra.Command {
	n := next{flags: flags, count: 10}
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "Print the next scheduled times of a CronTab",
		Long: `Print the next scheduled times of a CronTab, in its time zone. They are computed from the spec; with
jitter a run starts later.

With -f, the CronTab is read from a manifest instead, which need not be applied. No cluster is necessary then.
Times of @every are counted from now.

With --explain, also print scheduled times that do not run, and why: times that are excluded, or before notBefore
or after notAfter, and times in an hour that the clocks skip or repeat.`,
		Example: `  keelson crontab next backup --count 3
  keelson crontab next -f crontab.yaml --from 2026-12-20 --explain`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n.file != "" && len(args) == 0 {
				return nil
			}
			return oneCronTab()(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if n.count < 1 || n.count > 1000 {
				return usage.Errorf("--count=%d: must be from 1 to 1000", n.count)
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return n.run(cmd, name, time.Now())
		},
	}
	cmd.Flags().IntVar(&n.count, "count", n.count, "`number` of times")
	cmd.Flags().Var(usage.NonEmpty(&n.from), "from", "first `time`: a date such as 2026-12-24, or a time such as 2026-12-24T08:00 or 2026-12-24T08:00:00Z (default: now)")
	cmd.Flags().Var(usage.NonEmpty(&n.timeZone), "time-zone", "IANA time `zone` in which the times are printed (default: that of the CronTab)")
	cmd.Flags().VarP(usage.NonEmpty(&n.file), "filename", "f", "`file` with the CronTab; - for standard input")
	cmd.Flags().BoolVar(&n.explain, "explain", false, "also print the times that do not run, and why")
	return cmd
}

func (n *next) run(cmd *cobra.Command, name string, now time.Time) error {
	cronTab, err := n.find(cmd.Context(), name, cmd.InOrStdin(), now)
	if err != nil {
		return err
	}
	zone, err := cron.LoadLocation(cmp.Or(n.timeZone, string(cronTab.Spec.TimeZone)))
	if err != nil && n.timeZone != "" {
		return usage.Errorf("--time-zone: %v", err)
	}
	after := now
	if n.from != "" && err == nil {
		first, err := parseTime("from", n.from, zone)
		if err != nil {
			return err
		}
		after = first.Add(-time.Nanosecond)
	}
	title := fmt.Sprintf("CronTab %s/%s", cronTab.Namespace, cronTab.Name)
	preview := crontab.NewPreview(cronTab, after, time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC), n.count)
	if len(preview.Errors) > 0 {
		return fmt.Errorf("%s: %w", title, preview.Errors.ToAggregate())
	}
	if ptr.Deref(cronTab.Spec.Suspend, false) {
		fmt.Fprintf(cmd.ErrOrStderr(), "CronTab %s is suspended: no scheduled run starts until %s resume %s.\n", cronTab.Name, cmd.Parent().CommandPath(), n.flags.Words(cronTab.Name))
	}
	for _, line := range lines(preview, n.count, n.explain, zone) {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	if before := crontab.Predecessors(cronTab); len(before) > 0 {
		return fmt.Errorf("%s has no schedule: it runs after %s", title, strings.Join(before, ", "))
	}
	if len(preview.Runs) == 0 {
		return fmt.Errorf("no time of the schedule of %s is to come", title)
	}
	return nil
}

// find returns the CronTab of the file, or else of the API.
func (n *next) find(ctx context.Context, name string, stdin io.Reader, now time.Time) (*stablev1.CronTab, error) {
	if n.file == "" {
		c, err := open(ctx, n.flags)
		if err != nil {
			return nil, err
		}
		return c.Find(ctx, name)
	}
	cronTab, err := readManifest(n.file, name, stdin)
	if err != nil {
		return nil, err
	}
	// The values of H depend on the namespace.
	if cronTab.Namespace == "" {
		cronTab.Namespace = cmp.Or(n.flags.Namespace, "default")
		if api, err := n.flags.API(ctx); err == nil {
			cronTab.Namespace = api.Namespace
		}
	}
	if cronTab.CreationTimestamp.IsZero() {
		cronTab.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
	}
	return cronTab, nil
}

// parseTime returns the time that a flag has as text.
func parseTime(flag, text string, zone *time.Location) (time.Time, error) {
	at, err := crontab.ParseTime(text, zone)
	if err != nil {
		return at, usage.Errorf("--%s=%s: %v", flag, text, err)
	}
	return at, nil
}

// timeLayout is how scheduled times are printed.
const timeLayout = "2006-01-02T15:04:05Z07:00 Mon"

// lines returns a line for each run, and to explain the others, for each group of times that do not run.
func lines(preview crontab.Preview, count int, explain bool, zone *time.Location) []string {
	type line struct {
		at   time.Time
		text string
	}
	var all []line
	if explain {
		for _, omission := range preview.Omissions(count) {
			first, last := omission.First, omission.Last
			if omission.Reason != cron.HourSkipped { // such a time exists in no other zone either
				first, last = first.In(zone), last.In(zone)
			}
			text := first.Format(timeLayout) + "  no run: " + crontab.OmissionNotes[omission.Reason]
			if omission.Count > 1 {
				text += fmt.Sprintf(", %d times until %s", omission.Count, last.Format(timeLayout))
			}
			all = append(all, line{omission.First, text})
		}
	}
	for _, run := range preview.Runs {
		text := run.Time.In(zone).Format(timeLayout)
		if note := crontab.ClocksNotes[run.Clocks]; explain && note != "" {
			text += "  " + note
		}
		all = append(all, line{run.Time, text})
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	return texts
}
