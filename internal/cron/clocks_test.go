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

// Also over the end of a leap year, where package time takes a year of a rule for shorter than it is.
func TestClockChanges(t *testing.T) {
	p := mustNew(t, Options{Location: mustLoad(t, "Europe/Berlin")})
	var got []string
	for _, change := range p.ClockChanges(at(t, "2040-03-25T01:00:00Z"), at(t, "2041-03-31T01:00:00Z")) {
		got = append(got, change.UTC().Format(time.RFC3339))
	}
	if diff := cmp.Diff([]string{"2040-03-25T01:00:00Z", "2040-10-28T01:00:00Z"}, got); diff != "" {
		t.Errorf("the first is in the interval, the last is not (-want +got):\n%s", diff)
	}
	if got := mustNew(t, Options{}).ClockChanges(at(t, "2040-01-01T00:00:00Z"), at(t, "2041-01-01T00:00:00Z")); len(got) > 0 {
		t.Errorf("changes in UTC: %v", got)
	}
}

func TestWithH(t *testing.T) {
	for text, want := range map[string]string{
		"0 3 * * *": "H 3 * * *", " 15  4 L * * ": "H 4 L * *", "30 0 3 * * *": "30 H 3 * * *", "@daily": "H 0 * * *", "@hourly": "H * * * *",
		"*/5 * * * *": "", "0,30 * * * *": "", "H 3 * * *": "", "@every 5m": "", "0 3": "", "": "",
	} {
		if got, ok := WithH(text); got != want || ok != (want != "") {
			t.Errorf("WithH(%q) = %q, %v, want %q", text, got, ok, want)
		}
	}
}
