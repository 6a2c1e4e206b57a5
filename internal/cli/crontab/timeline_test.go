package crontab

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// aDay returns the timeline of a day in which the clocks change, of CronTabs in an API.
func aDay(t *testing.T) (crontab.Timeline, *time.Location) {
	t.Helper()
	schedule := func(name, text string) func(*stablev1.CronTab) {
		return func(c *stablev1.CronTab) {
			c.Name, c.Spec.Schedule, c.Spec.TimeZone, c.UID = name, stablev1.Schedule(text), "Europe/Berlin", "mine"
		}
	}
	slow := backup(schedule("backup", "*/30 * * * *"))
	job := jobOf(slow, "backup-1", first, nil, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(timeOf(first).Add(45 * time.Minute))})
	api := fake.NewClientBuilder().WithScheme(harness.Scheme(t, kind.Types)).WithObjects(slow, job, backup(schedule("a", "30 2 * * *")), backup(schedule("b", "30 2 * * *"))).Build()
	c := &cronTabs{&object.Objects[*stablev1.CronTab]{Client: api, API: &target.API{Namespace: "team"}, Kind: kind}}
	cronTabs, durations, err := c.read(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	tl := timeline{timeZone: "Europe/Berlin", from: "2027-03-28", to: "2027-03-28"}
	zone, from, to, err := tl.interval(timeOf(first).Time)
	if err != nil {
		t.Fatal(err)
	}
	return crontab.NewTimeline(cronTabs, from, to, durations), zone
}

func TestTimelineText(t *testing.T) {
	found, zone := aDay(t)
	var out strings.Builder
	if err := new(timeline).print(&out, found, zone); err != nil {
		t.Fatal(err)
	}
	want := `From:      2027-03-28T00:00+01:00 Sun
To:        2027-03-29T00:00+02:00 Mon
CronTabs:  3
Runs:      48

Runs per hour   0     3     6     9     12    15    18    21
Sun 2027-03-28  ▒ ▒   █ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ ▒ 
█ is up to 4 runs.

Busiest minutes:
TIME                         RUNS   CRONTABS
2027-03-28T03:00+02:00 Sun   3      team/a, team/b, team/backup

Changes of the clocks:
TIME                         CRONTAB   TIMES   WHAT
2027-03-28T03:00+02:00 Sun   team/a    1       the clocks skip the scheduled time, so it runs right after
2027-03-28T03:00+02:00 Sun   team/b    1       the clocks skip the scheduled time, so it runs right after

If runs last as long as before, up to 2 are active at once, first at 2027-03-28T00:30+01:00 Sun.
A run of team/backup lasts 45m, and the next one can be due after 30m.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestTimelinePicture(t *testing.T) {
	found, zone := aDay(t)
	var out strings.Builder
	if err := (&timeline{format: "svg"}).print(&out, found, zone); err != nil {
		t.Fatal(err)
	}
	cells := 0
	for decoder := xml.NewDecoder(strings.NewReader(out.String())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "title" {
			cells++
		}
	}
	if cells != 23 || !strings.Contains(out.String(), ">Sun 03-28</text>") || !strings.Contains(out.String(), ">4</text>") {
		t.Errorf("%d hours of a day with 23 are drawn:\n%s", cells, out.String())
	}
}

func TestTimelineInterval(t *testing.T) {
	for _, test := range []struct{ from, to, zone, want, err string }{
		{zone: "Europe/Berlin", want: "2026-11-25T00:00:00+01:00 2026-12-02T00:00:00+01:00"},
		{from: "2027-01-01", to: "2027-12-31", zone: "UTC", want: "2027-01-01T00:00:00Z 2028-01-01T00:00:00Z"},
		{from: "2027-01-01T08:00", to: "2027-01-01T09:00", zone: "UTC", want: "2027-01-01T08:00:00Z 2027-01-01T09:00:00Z"},
		{from: "2027-01-02", to: "2026-12-31", zone: "UTC", err: "must be at most 1100 days, the first one first"},
		{from: "2027-01-02", to: "2037-12-31", zone: "UTC", err: "must be at most 1100 days"},
		{from: "tomorrow", zone: "UTC", err: "--from=tomorrow: must be a date"},
		{zone: "Mars", err: "--time-zone: "},
	} {
		tl := timeline{from: test.from, to: test.to, timeZone: test.zone}
		_, from, to, err := tl.interval(timeOf(first).Time)
		if got := from.Format(time.RFC3339) + " " + to.Format(time.RFC3339); err == nil && got != test.want || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
}
