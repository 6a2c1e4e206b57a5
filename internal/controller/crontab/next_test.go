package crontab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

func TestNextRuns(t *testing.T) {
	after := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		spec stablev1.CronTabSpec
		want []string
	}{
		{"UTC", stablev1.CronTabSpec{Schedule: "@daily"}, []string{"2026-10-25T00:00:00Z", "2026-10-26T00:00:00Z", "2026-10-27T00:00:00Z"}},
		{
			"across a change of the clocks, suspended", stablev1.CronTabSpec{Schedule: "0 6 * * *", TimeZone: "Europe/Berlin", Suspend: ptr.To(true)},
			[]string{"2026-10-25T06:00:00+01:00", "2026-10-26T06:00:00+01:00", "2026-10-27T06:00:00+01:00"},
		},
		{
			"fewer than wanted", stablev1.CronTabSpec{Schedules: []stablev1.Schedule{"0 0 25 10 *"}, ExcludeDates: []stablev1.DateRange{"2027-01-01/9999-12-31"}},
			[]string{"2026-10-25T00:00:00Z"},
		},
		{"without a schedule", stablev1.CronTabSpec{}, nil},
	} {
		runs, err := NextRuns(&stablev1.CronTab{Spec: test.spec}, after, 3)
		var got []string
		for _, run := range runs {
			got = append(got, run.Format(time.RFC3339))
		}
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", test.name, err, diff)
		}
	}
	if _, err := NextRuns(&stablev1.CronTab{Spec: stablev1.CronTabSpec{Schedule: "61 * * * *"}}, after, 3); err == nil {
		t.Error("an invalid schedule has no error")
	}
}
