package crontab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*stablev1.CronTab)
		want   []string
	}{
		{"nothing", func(*stablev1.CronTab) {}, nil},
		{"a schedule", func(c *stablev1.CronTab) { c.Spec.Schedule = "@daily" }, nil},
		{"all mistakes are told", func(c *stablev1.CronTab) {
			c.Annotations = map[string]string{stablev1.RunRequestedAtAnnotation: "soon"}
			c.Spec.TimeZone = ptr.To("Mars/Base")
			c.Spec.Schedules = []stablev1.Schedule{"@daily", "* * * * 5-2"}
			c.Spec.ExcludeDates = []stablev1.DateRange{"2026-02-30"}
		}, []string{
			`spec.timeZone: Invalid value: "Mars/Base": time zone "Mars/Base" is not known; use a name of the IANA database such as Europe/Berlin`,
			`spec.schedules[1]: Invalid value: "* * * * 5-2": day of week "5-2", character 9: the range runs backwards; write the smaller value first, or two ranges: 5-6,0-2`,
			`spec.excludeDates[0]: Invalid value: "2026-02-30": date "2026-02-30", character 1: must be a date such as 2026-12-24, or two with a slash between them`,
			`metadata.annotations[crontab.stable.example.com/run-requested-at]: Invalid value: "soon": must be a time in RFC 3339, such as 2026-12-24T18:00:00Z`,
		}},
		{"another rule for daylight saving", func(c *stablev1.CronTab) { c.Spec.DaylightSaving = "Never" }, []string{
			`spec.daylightSaving: Invalid value: "Never": daylight saving rule "Never" is not known; must be Once or Literal`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
			test.change(cronTab)
			var got []string
			for _, mistake := range Validate(cronTab) {
				got = append(got, mistake.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	now := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		spec stablev1.CronTabSpec
		want []string
	}{
		{"on demand only", stablev1.CronTabSpec{}, nil},
		{"every day", stablev1.CronTabSpec{Schedule: "@daily"}, nil},
		{"a day that never comes", stablev1.CronTabSpec{Schedule: "0 0 30 2 *"}, []string{neverRuns}},
		{"the last run is over", stablev1.CronTabSpec{Schedule: "@daily", NotAfter: &metav1.Time{Time: now.Add(-time.Hour)}}, []string{neverRuns}},
		{"and it is suspended", stablev1.CronTabSpec{Schedule: "0 0 30 2 *", Suspend: ptr.To(true)}, nil},
		{"what is refused", stablev1.CronTabSpec{Schedule: "x"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Warnings(&stablev1.CronTab{Spec: test.spec}, now)); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
		})
	}
}
