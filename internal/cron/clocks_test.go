package cron

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClocksAt(t *testing.T) {
	for _, test := range []struct {
		name, schedule string
		rule           DaylightSaving
		after          string
		want           []Clocks
	}{
		{"a fixed time in the skipped hour", "30 2 * * *", Once, "2026-03-28T00:00:00Z", []Clocks{ClocksSteady, ClocksSkipped, ClocksSteady}},
		{"it is the end of the skipped hour", "0 3 * * *", Once, "2026-03-28T00:00:00Z", []Clocks{ClocksSteady, ClocksSteady, ClocksSteady}},
		{"real time", "*/30 * * * *", Once, "2026-03-29T00:00:00Z", []Clocks{ClocksSteady, ClocksSteady, ClocksSteady}},
		{"a fixed time in the repeated hour", "30 2 * * *", Once, "2026-10-24T00:00:00Z", []Clocks{ClocksSteady, ClocksFirst, ClocksSteady}},
		{"the same twice", "30 2 * * *", Literal, "2026-10-24T00:00:00Z", []Clocks{ClocksSteady, ClocksFirst, ClocksSecond, ClocksSteady}},
		{"counted seconds", "@every 1h", Once, "2026-03-28T23:00:00Z", []Clocks{ClocksSteady, ClocksSteady, ClocksSteady}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, test.schedule, "")}, Location: mustLoad(t, "Europe/Berlin"), DaylightSaving: test.rule})
			var got []Clocks
			for run := at(t, test.after); len(got) < len(test.want); {
				run, _ = plan.Next(run)
				got = append(got, plan.ClocksAt(run))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	// A zone that never changes has no end of its stretch.
	plan := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, "@daily", "")}})
	if got := plan.ClocksAt(time.Unix(0, 0)); got != ClocksSteady {
		t.Errorf("UTC: %q", got)
	}
}
