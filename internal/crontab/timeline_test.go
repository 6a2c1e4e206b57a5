package crontab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// scheduled returns a CronTab of the namespace team.
func scheduled(name, schedule string, changes ...func(*stablev1.CronTabSpec)) stablev1.CronTab {
	cronTab := stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	cronTab.Spec.Schedule, cronTab.Spec.JobTemplate = stablev1.Schedule(schedule), &stablev1.JobTemplate{}
	for _, change := range changes {
		change(&cronTab.Spec)
	}
	return cronTab
}

func inBerlin(spec *stablev1.CronTabSpec) { spec.TimeZone = "Europe/Berlin" }

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestTimeline(t *testing.T) {
	from := at(t, "2026-11-29T00:00:00Z")
	got := crontab.NewTimeline([]stablev1.CronTab{
		scheduled("a", "@daily"), scheduled("b", "0 0 * * *"), scheduled("c", "*/30 * * * *"),
		scheduled("spread", "0 0 * * *", func(spec *stablev1.CronTabSpec) { spec.Jitter = &metav1.Duration{Duration: 10 * time.Hour} }),
		scheduled("suspended", "@daily", func(spec *stablev1.CronTabSpec) { spec.Suspend = ptr.To(true) }),
		scheduled("invalid", "0 0"), scheduled("empty", "@daily", func(spec *stablev1.CronTabSpec) { spec.JobTemplate = nil }),
	}, from, from.Add(24*time.Hour), map[types.NamespacedName]time.Duration{
		{Namespace: "team", Name: "a"}: 90 * time.Second, {Namespace: "team", Name: "c"}: 40 * time.Minute,
	})
	if got.CronTabs != 4 || got.Runs != 51 || len(got.Hours) != 24 || got.Hours[0] < 4 || len(got.Busiest) == 0 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(crontab.BusyMinute{Time: from, Runs: 3, CronTabs: []string{"team/a", "team/b", "team/c"}}, got.Busiest[0]); diff != "" {
		t.Errorf("the busiest minute (-want +got):\n%s", diff)
	}
	if spread := got.Spread; spread == nil || strings.Join(spread.CronTabs, " ") != "team/a team/b" || spread.Runs > 2 {
		t.Errorf("with H: %+v", spread)
	}
	if got.MostActive != 2 || !got.MostActiveAt.Equal(from) {
		t.Errorf("%d active at %v", got.MostActive, got.MostActiveAt)
	}
	if diff := cmp.Diff([]crontab.Overlap{{CronTab: "team/c", Duration: metav1.Duration{Duration: 40 * time.Minute}, Interval: metav1.Duration{Duration: 30 * time.Minute}}}, got.Overlaps); diff != "" {
		t.Errorf("overlaps (-want +got):\n%s", diff)
	}
}

// A run that is scheduled before the interval, and due in it, counts; one that is due after it does not.
func TestTimelineWithJitter(t *testing.T) {
	hours := func(spec *stablev1.CronTabSpec) { spec.Jitter = &metav1.Duration{Duration: 12 * time.Hour} }
	daily := scheduled("late", "0 0 * * *", hours)
	schedule, _ := crontab.New(&daily)
	due := schedule.Due(at(t, "2026-11-29T00:00:00Z"))
	for from, want := range map[time.Time]int{due.Add(-time.Minute): 1, due.Add(time.Minute): 0, due.Add(-time.Hour): 0} {
		if got := crontab.NewTimeline([]stablev1.CronTab{daily}, from, from.Add(10*time.Minute), nil); got.Runs != want {
			t.Errorf("%d runs from %s, due at %s", got.Runs, from, due)
		}
	}
	stopped := scheduled("stopped", "* * * * *", func(spec *stablev1.CronTabSpec) { spec.SuspendAfterFailures = ptr.To[int32](1) })
	stopped.Status.FailureStreak = &stablev1.FailureStreak{Runs: make([]stablev1.FailedRun, 1)}
	if got := crontab.NewTimeline([]stablev1.CronTab{stopped}, due, due.Add(time.Hour), nil); got.CronTabs != 0 || got.Runs != 0 {
		t.Errorf("a CronTab that is stopped after failures: %+v", got)
	}
}

func TestTimelineOfChangedClocks(t *testing.T) {
	literal := func(spec *stablev1.CronTabSpec) {
		inBerlin(spec)
		spec.DaylightSaving = stablev1.DaylightSaving(cron.Literal)
	}
	got := crontab.NewTimeline([]stablev1.CronTab{
		scheduled("once", "30 2 * * *", inBerlin), scheduled("literal", "30 2 * * *", literal), scheduled("noon", "0 12 * * *", inBerlin), scheduled("utc", "30 1 * * *"),
	}, at(t, "2027-03-01T00:00:00Z"), at(t, "2027-11-30T00:00:00Z"), nil)
	var lines []string
	for _, run := range got.Clocks {
		lines = append(lines, fmt.Sprint(run.Time.UTC().Format(time.RFC3339), " ", run.CronTab, " ", run.Omitted, run.Clocks, " ", run.Count))
	}
	want := []string{
		"2027-03-28T01:00:00Z team/once Skipped 1",
		"2027-03-28T01:30:00Z team/literal HourSkipped 1",
		"2027-10-31T01:30:00Z team/once HourRepeated 1",
		"2027-10-31T01:30:00Z team/literal Second 1",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A year of 10 000 CronTabs, as a person has them: most run daily, some every five minutes.
func BenchmarkTimeline(b *testing.B) {
	schedules := []string{"0 3 * * *", "H 2 * * *", "30 1 * * MON-FRI", "@daily", "H H * * *", "15 4 1 * *", "@weekly", "0 * * * *", "H * * * *", "*/5 * * * *"}
	var all []stablev1.CronTab
	for i := range 10_000 {
		all = append(all, scheduled(fmt.Sprint(i), schedules[i%len(schedules)], inBerlin))
	}
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		crontab.NewTimeline(all, from, from.AddDate(1, 0, 0), nil)
	}
}
