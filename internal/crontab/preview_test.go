package crontab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

func TestPreview(t *testing.T) {
	after := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		spec    stablev1.CronTabSpec
		want    []string
		omitted []string
	}{
		{"UTC", stablev1.CronTabSpec{Schedule: "@daily"}, []string{"2026-10-25T00:00:00Z", "2026-10-26T00:00:00Z", "2026-10-27T00:00:00Z"}, nil},
		{
			"across a change of the clocks, suspended", stablev1.CronTabSpec{Schedule: "0 6 * * *", TimeZone: "Europe/Berlin", Suspend: ptr.To(true)},
			[]string{"2026-10-25T06:00:00+01:00", "2026-10-26T06:00:00+01:00", "2026-10-27T06:00:00+01:00"}, nil,
		},
		{
			"in a repeated hour", stablev1.CronTabSpec{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin"},
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"},
			[]string{"HourRepeated 1 2026-10-25T02:30:00+01:00 2026-10-25T02:30:00+01:00"},
		},
		{
			"fewer than wanted", stablev1.CronTabSpec{Schedules: []stablev1.Schedule{"0 0 25 10 *"}, ExcludeDates: []stablev1.DateRange{"2027-01-01/9999-12-31"}},
			[]string{"2026-10-25T00:00:00Z"}, []string{"Excluded 2 2027-10-25T00:00:00Z 2028-10-25T00:00:00Z"},
		},
		{
			"outside of notBefore and notAfter", stablev1.CronTabSpec{
				Schedule: "@daily", NotBefore: &metav1.Time{Time: after.AddDate(0, 0, 2)}, NotAfter: &metav1.Time{Time: after.AddDate(0, 0, 3)},
			},
			[]string{"2026-10-27T00:00:00Z"},
			[]string{"TooEarly 2 2026-10-25T00:00:00Z 2026-10-26T00:00:00Z", "TooLate 2 2026-10-28T00:00:00Z 2026-10-29T00:00:00Z"},
		},
		{
			"always in a skipped hour", stablev1.CronTabSpec{Schedule: "*/30 2 25-31 3 */7", TimeZone: "Europe/Berlin"}, nil,
			[]string{
				"HourSkipped 2 2027-03-28T02:00:00+01:00 2027-03-28T02:30:00+01:00", "HourSkipped 2 2028-03-26T02:00:00+01:00 2028-03-26T02:30:00+01:00",
				"HourSkipped 2 2029-03-25T02:00:00+01:00 2029-03-25T02:30:00+01:00",
			},
		},
		{"never", stablev1.CronTabSpec{Schedule: "0 0 31 2 *"}, nil, nil},
		{"without a schedule", stablev1.CronTabSpec{}, nil, nil},
	} {
		preview := NewPreview(&stablev1.CronTab{Spec: test.spec}, after, after.AddDate(5000, 0, 0), 3)
		var got, omitted []string
		for _, run := range preview.Runs {
			got = append(got, run.Time.Format(time.RFC3339))
		}
		for _, o := range preview.Omissions(3) {
			omitted = append(omitted, string(o.Reason)+" "+string(rune('0'+o.Count))+" "+o.First.Format(time.RFC3339)+" "+o.Last.Format(time.RFC3339))
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(preview.Errors) > 0 {
			t.Errorf("%s: %v (-want +got)\n%s", test.name, preview.Errors, diff)
		}
		if diff := cmp.Diff(test.omitted, omitted); diff != "" {
			t.Errorf("%s: omitted (-want +got)\n%s", test.name, diff)
		}
	}
	invalid := NewPreview(&stablev1.CronTab{Spec: stablev1.CronTabSpec{Schedule: "61 * * * *"}}, after, after, 3)
	if len(invalid.Errors) != 1 || invalid.Omissions(3) != nil {
		t.Errorf("an invalid schedule has the errors %v", invalid.Errors)
	}
}
