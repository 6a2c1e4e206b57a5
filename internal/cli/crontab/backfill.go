package crontab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/requests"
)

// backfill requests a backfill of a CronTab.
type backfill struct {
	*cronTabs
	name                string
	from, to, reprocess string
	maxConcurrency      int32
	reverse             bool
	output              object.Output
	requested           metav1.Time
}

var reprocessModes = map[string]stablev1.Reprocess{"none": stablev1.ReprocessNone, "failed": stablev1.ReprocessFailed, "all": stablev1.ReprocessAll}

func newBackfill(flags *target.Flags) *cobra.Command {
	var waits object.Waiting
	b := backfill{reprocess: "none", maxConcurrency: 1}
	cmd := &cobra.Command{
		Use:   "backfill NAME",
		Short: "Run scheduled times of the past",
		Long: `Run the scheduled times of a CronTab in a range of the past, each once, within its concurrencyPolicy, also while it is suspended.
Times whose Job still exists do not run, except with --reprocess. A dry run prints the times.`,
		Example: `  keelson crontab backfill report --from 2026-11-01 --to 2026-11-07 --dry-run=client
  keelson crontab backfill report --from 2026-11-01 --to 2026-11-07 --reprocess failed --max-concurrency 4`,
		Args: oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			mode, found := reprocessModes[b.reprocess]
			switch {
			case !found:
				return usage.Errorf("--reprocess=%s: must be none, failed or all", b.reprocess)
			case b.from == "" || b.to == "":
				return usage.Errorf("--from and --to are required")
			case b.maxConcurrency < 1:
				return usage.Errorf("--max-concurrency=%d: must be 1 or more", b.maxConcurrency)
			}
			err := b.output.Validate()
			if err != nil {
				return err
			}
			if b.cronTabs, err = open(cmd.Context(), flags); err != nil {
				return err
			}
			b.name = args[0]
			if err := b.request(cmd.Context(), cmd.OutOrStdout(), mode, time.Now()); err != nil || !b.output.Waits(&waits) {
				return err
			}
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), b.hasFinished)
		},
	}
	cmd.Flags().Var(usage.NonEmpty(&b.from), "from", "first `time`: a date such as 2026-12-24, or a time such as 2026-12-24T08:00, in the time zone of the CronTab")
	cmd.Flags().Var(usage.NonEmpty(&b.to), "to", "last `time`; with a date, all of that day")
	cmd.Flags().StringVar(&b.reprocess, "reprocess", b.reprocess, "`which` times run again whose Job still exists: none, failed or all")
	cmd.Flags().Int32Var(&b.maxConcurrency, "max-concurrency", b.maxConcurrency, "`number` of active runs of the backfill")
	cmd.Flags().BoolVar(&b.reverse, "reverse", false, "start with the latest time")
	b.output.AddFlags(cmd.Flags())
	waits.AddFlags(cmd.Flags(), "all runs have finished")
	return cmd
}

// request requests the backfill. A dry run prints its times.
func (b *backfill) request(ctx context.Context, out io.Writer, mode stablev1.Reprocess, now time.Time) error {
	cronTab, err := b.Find(ctx, b.name)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("CronTab %s/%s", b.API.Namespace, b.name)
	schedule, mistakes := crontab.New(cronTab)
	if len(mistakes) > 0 {
		return fmt.Errorf("%s: %w", title, mistakes.Fields().ToAggregate())
	}
	last := cronTab.Status.Backfill
	if open := cronTab.Spec.Backfill; open != nil && (last == nil || !last.RequestedAt.Time.Equal(requests.At(&open.RequestedAt)) || last.FinishTime == nil) && b.output.Writes() {
		return fmt.Errorf(`%s: %s. Wait until it has finished, or cancel it: kubectl patch crontab --namespace %s %s --type merge --patch '{"spec":{"backfill":null}}'`,
			title, progressOf(cronTab, requests.Token(&open.RequestedAt)), b.API.Namespace, b.name)
	}
	before := client.MergeFromWithOptions(cronTab.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if cronTab.Spec.Backfill, err = b.spec(schedule.Location, mode); err != nil {
		return err
	}
	var used *metav1.Time
	if last != nil {
		used = &last.RequestedAt
	}
	b.requested = requests.Next(now, used)
	cronTab.Spec.Backfill.RequestedAt = b.requested
	times, err := schedule.NewBackfill(cronTab.Spec.Backfill)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", title, err)
	case times.Len() == 0:
		return fmt.Errorf("%s: the schedule has no time from %s to %s that has passed", title, b.from, b.to)
	}
	if err := b.Write(ctx, cronTab, before, &b.output); err != nil {
		return err
	}
	if !b.output.Writes() && b.output.Text() {
		for at, ok := times.Next(time.Time{}); ok; at, ok = times.Next(at) {
			if _, err := fmt.Fprintln(out, at.Format(timeLayout)); err != nil {
				return err
			}
		}
	}
	return b.Kind.Print(out, cronTab, fmt.Sprintf("backfill requested, scheduled times: %d", times.Len()), &b.output)
}

// spec returns the backfill without the time of the request.
func (b *backfill) spec(zone *time.Location, mode stablev1.Reprocess) (*stablev1.Backfill, error) {
	zone = cmp.Or(zone, time.UTC)
	from, err := parseTime("from", b.from, zone)
	if err != nil {
		return nil, err
	}
	to, err := parseTime("to", b.to, zone)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(b.to, "T") {
		to = to.AddDate(0, 0, 1).Add(-time.Second)
	}
	if to.Before(from) {
		return nil, usage.Errorf("--to=%s: must not be before --from=%s", b.to, b.from)
	}
	order := stablev1.EarliestFirst
	if b.reverse {
		order = stablev1.LatestFirst
	}
	return &stablev1.Backfill{
		From: metav1.NewTime(from), To: metav1.NewTime(to), Reprocess: mode, MaxConcurrency: b.maxConcurrency, Order: order,
	}, nil
}

// hasFinished reports whether all runs of the backfill have finished, and otherwise its progress.
func (b *backfill) hasFinished(ctx context.Context) (bool, string, error) {
	cronTab, err := b.Find(ctx, b.name)
	if err != nil {
		return false, "", err
	}
	token := requests.Token(&b.requested)
	if cronTab.Spec.Backfill == nil || requests.Token(&cronTab.Spec.Backfill.RequestedAt) != token {
		return false, "", fmt.Errorf("CronTab %s/%s: the backfill requested at %s was cancelled", b.API.Namespace, b.name, token)
	}
	last := cronTab.Status.Backfill
	return last != nil && requests.Token(&last.RequestedAt) == token && last.FinishTime != nil, progressOf(cronTab, token), nil
}

// progressOf describes the progress of the backfill with a request.
func progressOf(cronTab *stablev1.CronTab, request string) string {
	line := fmt.Sprintf("the backfill requested at %s has not started yet", request)
	if last := cronTab.Status.Backfill; last != nil && requests.Token(&last.RequestedAt) == request {
		line = fmt.Sprintf("the backfill requested at %s: %d of %d scheduled times are done", request, last.Done, last.Total)
	}
	return line
}
