package crontab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// What is requested, or said, of a CronTab in Berlin, on 25 November 2026.
func TestBackfill(t *testing.T) {
	now := time.Date(2026, 11, 25, 11, 0, 0, 0, time.UTC)
	daily := func(changes ...func(*stablev1.CronTab)) *stablev1.CronTab {
		return backup(func(c *stablev1.CronTab) {
			c.Spec.Schedule, c.Spec.TimeZone = "0 6 * * *", "Europe/Berlin"
			for _, change := range changes {
				change(c)
			}
		})
	}
	last := func(finished bool) func(*stablev1.CronTab) {
		return func(c *stablev1.CronTab) {
			c.Spec.Backfill = &stablev1.Backfill{RequestedAt: *timeOf(first)}
			c.Status.Backfill = &stablev1.BackfillStatus{RequestedAt: *timeOf(first), Total: 3, Done: 2}
			if finished {
				c.Status.Backfill.FinishTime = timeOf(second)
			}
		}
	}
	requested := &stablev1.Backfill{
		RequestedAt: metav1.NewTime(now), From: *timeOf("2026-11-22T23:00:00Z"), To: *timeOf("2026-11-24T22:59:59Z"),
		Reprocess: stablev1.ReprocessFailed, MaxConcurrency: 2, Order: stablev1.LatestFirst,
	}
	after := *requested
	after.RequestedAt = *timeOf(second)
	for _, test := range []struct {
		name    string
		cronTab *stablev1.CronTab
		change  func(*backfill)
		out     string
		want    *stablev1.Backfill
		err     string
	}{
		{name: "two days", cronTab: daily(), out: "crontab/backup backfill requested, scheduled times: 2\n", want: requested},
		{name: "a dry run", cronTab: daily(), change: func(b *backfill) { b.output = dryRun(t, "client") },
			out: "2026-11-24T06:00:00+01:00 Tue\n2026-11-23T06:00:00+01:00 Mon\ncrontab/backup backfill requested, scheduled times: 2 (dry run)\n"},
		{name: "a dry run of the server", cronTab: daily(last(false)), change: func(b *backfill) { b.output = dryRun(t, "server") },
			out: "2026-11-24T06:00:00+01:00 Tue\n2026-11-23T06:00:00+01:00 Mon\ncrontab/backup backfill requested, scheduled times: 2 (server dry run)\n"},
		{name: "after another one", cronTab: daily(last(true)), out: "crontab/backup backfill requested, scheduled times: 2\n", want: &after},
		{name: "while another one runs", cronTab: daily(last(false)), err: "the backfill requested at " + first + ": 2 of 3 scheduled times are done. Wait until"},
		{name: "of the future", cronTab: daily(), change: func(b *backfill) { b.from, b.to = "2026-11-26", "2026-11-27" }, err: "the schedule has no time from 2026-11-26 to 2026-11-27 that has passed"},
		{name: "backwards", cronTab: daily(), change: func(b *backfill) { b.to = "2026-11-22" }, err: "--to=2026-11-22: must not be before --from=2026-11-23"},
		{name: "no date", cronTab: daily(), change: func(b *backfill) { b.to = "now" }, err: "--to=now: must be a date"},
		{name: "too much", cronTab: daily(func(c *stablev1.CronTab) { c.Spec.Schedule = "* * * * * *" }), err: "the range has 172800 scheduled times, more than 10000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newTrigger, api := newTriggers(t, interceptor.Funcs{}, test.cronTab)
			b := &backfill{cronTabs: newTrigger().cronTabs, name: "backup", from: "2026-11-23", to: "2026-11-24", maxConcurrency: 2, reverse: true}
			if test.change != nil {
				test.change(b)
			}
			var out strings.Builder
			err := b.request(t.Context(), &out, stablev1.ReprocessFailed, now)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) || out.String() != test.out {
				t.Errorf("%v, %q", err, out.String())
			}
			var got stablev1.CronTab
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(test.cronTab), &got); err != nil {
				t.Fatal(err)
			}
			if test.want != nil && !cmp.Equal(test.want, got.Spec.Backfill) {
				t.Errorf("the request (-want +got):\n%s", cmp.Diff(test.want, got.Spec.Backfill))
			}
		})
	}
}
