package cron

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at parses a time such as "2026-03-29T01:30:00+01:00".
func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestDaylightSaving(t *testing.T) {
	tests := []struct {
		name, zone, schedule string
		after                string
		once, literal        []string
	}{{
		name: "a fixed time that is skipped runs right after the jump", zone: "Europe/Berlin", schedule: "30 2 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		literal: []string{"2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"},
	}, {
		name: "all that one schedule skips is one run", zone: "Europe/Berlin", schedule: "0,15,30 2 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"},
		literal: []string{"2026-03-30T02:00:00+02:00", "2026-03-30T02:15:00+02:00"},
	}, {
		name: "a fixed time right after the jump runs once", zone: "Europe/Berlin", schedule: "30 2,3 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00"},
		literal: []string{"2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00", "2026-03-30T03:30:00+02:00"},
	}, {
		name: "two fixed times that fall together", zone: "Europe/Berlin", schedule: "0 2,3 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"},
		literal: []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"},
	}, {
		name: "a wildcard minute is skipped with its hour", zone: "Europe/Berlin", schedule: "*/30 2 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-30T02:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		literal: []string{"2026-03-30T02:00:00+02:00", "2026-03-30T02:30:00+02:00"},
	}, {
		name: "a wildcard hour follows real time", zone: "Europe/Berlin", schedule: "30 * * * *",
		after:   "2026-03-29T00:45:00+01:00",
		once:    []string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"},
		literal: []string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"},
	}, {
		name: "every other hour, as a range, is fixed", zone: "Europe/Berlin", schedule: "0 0-23/2 * * *",
		after:   "2026-03-29T00:45:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"},
		literal: []string{"2026-03-29T04:00:00+02:00", "2026-03-29T06:00:00+02:00"},
	}, {
		name: "H is fixed", zone: "Europe/Berlin", schedule: "H(30-30) 2 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00"},
		literal: []string{"2026-03-30T02:30:00+02:00"},
	}, {
		name: "H with a step is a wildcard", zone: "Europe/Berlin", schedule: "H/1 2 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-30T02:00:00+02:00"},
		literal: []string{"2026-03-30T02:00:00+02:00"},
	}, {
		name: "a wildcard second alone does not follow real time", zone: "Europe/Berlin", schedule: "*/20 30 2 * * *",
		after:   "2026-03-28T12:00:00+01:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		literal: []string{"2026-03-30T02:30:00+02:00", "2026-03-30T02:30:20+02:00"},
	}, {
		name: "a fixed time that is repeated runs the first time", zone: "Europe/Berlin", schedule: "30 2 * * *",
		after:   "2026-10-24T12:00:00+02:00",
		once:    []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		literal: []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"},
	}, {
		name: "a wildcard runs in both", zone: "Europe/Berlin", schedule: "*/30 2 * * *",
		after:   "2026-10-24T12:00:00+02:00",
		once:    []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:00:00+01:00"},
		literal: []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:00:00+01:00"},
	}, {
		name: "the end of the repeated hour is not in it", zone: "Europe/Berlin", schedule: "0 3 * * *",
		after:   "2026-10-24T12:00:00+02:00",
		once:    []string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"},
		literal: []string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"},
	}, {
		name: "asked in the repeated hour", zone: "Europe/Berlin", schedule: "30 2 * * *",
		after:   "2026-10-25T02:10:00+01:00",
		once:    []string{"2026-10-26T02:30:00+01:00"},
		literal: []string{"2026-10-25T02:30:00+01:00"},
	}, {
		name: "half an hour is skipped", zone: "Australia/Lord_Howe", schedule: "15 2 * * *",
		after:   "2026-10-03T12:00:00+10:30",
		once:    []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		literal: []string{"2026-10-05T02:15:00+11:00"},
	}, {
		name: "half an hour is repeated", zone: "Australia/Lord_Howe", schedule: "45 1 * * *",
		after:   "2026-04-04T12:00:00+11:00",
		once:    []string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"},
		literal: []string{"2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-06T01:45:00+10:30"},
	}, {
		name: "midnight is skipped", zone: "America/Sao_Paulo", schedule: "@daily",
		after:   "2018-11-03T12:00:00-03:00",
		once:    []string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		literal: []string{"2018-11-05T00:00:00-02:00"},
	}, {
		name: "the day of a skipped midnight counts", zone: "America/Sao_Paulo", schedule: "0 0 * * SUN",
		after:   "2018-11-03T12:00:00-03:00",
		once:    []string{"2018-11-04T01:00:00-02:00", "2018-11-11T00:00:00-02:00"},
		literal: []string{"2018-11-11T00:00:00-02:00"},
	}, {
		name: "the hour before midnight is repeated", zone: "America/Sao_Paulo", schedule: "30 23 * * *",
		after:   "2018-02-17T12:00:00-02:00",
		once:    []string{"2018-02-17T23:30:00-02:00", "2018-02-18T23:30:00-03:00"},
		literal: []string{"2018-02-17T23:30:00-02:00", "2018-02-17T23:30:00-03:00", "2018-02-18T23:30:00-03:00"},
	}, {
		name: "the clock goes back over midnight, a minute after it", zone: "America/St_Johns", schedule: "0 0 * * *",
		after:   "2010-11-06T12:00:00-02:30",
		once:    []string{"2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		literal: []string{"2010-11-07T00:00:00-02:30", "2010-11-07T00:00:00-03:30", "2010-11-08T00:00:00-03:30"},
	}, {
		name: "a day that the zone left out is a correction: nothing is caught up", zone: "Pacific/Apia", schedule: "30 2 * * *",
		after:   "2011-12-28T12:00:00-10:00",
		once:    []string{"2011-12-29T02:30:00-10:00", "2011-12-31T02:30:00+14:00"},
		literal: []string{"2011-12-29T02:30:00-10:00", "2011-12-31T02:30:00+14:00"},
	}, {
		name: "summer time ends for Ramadan", zone: "Africa/Casablanca", schedule: "30 2 * * *",
		after:   "2024-03-09T12:00:00+01:00",
		once:    []string{"2024-03-10T02:30:00+01:00", "2024-03-11T02:30:00Z"},
		literal: []string{"2024-03-10T02:30:00+01:00", "2024-03-10T02:30:00Z", "2024-03-11T02:30:00Z"},
	}, {
		name: "and begins again", zone: "Africa/Casablanca", schedule: "30 2 * * *",
		after:   "2024-04-13T12:00:00+00:00",
		once:    []string{"2024-04-14T03:00:00+01:00", "2024-04-15T02:30:00+01:00"},
		literal: []string{"2024-04-15T02:30:00+01:00"},
	}, {
		name: "two hours are skipped", zone: "Antarctica/Troll", schedule: "15 1,2 * * *",
		after:   "2026-03-28T12:00:00+00:00",
		once:    []string{"2026-03-29T03:00:00+02:00", "2026-03-30T01:15:00+02:00"},
		literal: []string{"2026-03-30T01:15:00+02:00"},
	}, {
		name: "three hours are a correction", zone: "Antarctica/Casey", schedule: "30 3 * * *",
		after:   "2011-10-27T12:00:00+08:00",
		once:    []string{"2011-10-29T03:30:00+11:00"},
		literal: []string{"2011-10-29T03:30:00+11:00"},
	}, {
		name: "@every does not care", zone: "Europe/Berlin", schedule: "@every 40m",
		after:   "2026-03-29T01:20:00+01:00",
		once:    []string{"2026-03-29T01:40:00+01:00", "2026-03-29T03:20:00+02:00"},
		literal: []string{"2026-03-29T01:40:00+01:00", "2026-03-29T03:20:00+02:00"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Schedules: []*Schedule{mustParse(t, tt.schedule, "")}, Location: mustLoad(t, tt.zone)}
			got := runs(mustNew(t, o), at(t, tt.after), len(tt.once))
			if diff := cmp.Diff(tt.once, got); diff != "" {
				t.Errorf("runs of %q with Once (-want +got):\n%s", tt.schedule, diff)
			}
			o.DaylightSaving = Literal
			got = runs(mustNew(t, o), at(t, tt.after), len(tt.literal))
			if diff := cmp.Diff(tt.literal, got); diff != "" {
				t.Errorf("runs of %q with Literal (-want +got):\n%s", tt.schedule, diff)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	tests := []struct {
		name      string
		schedules []string
		options   Options
		exclude   []string
		zone      string
		after     string
		want      []string // all there are, up to four
	}{{
		name: "no schedules", after: "2026-01-01T00:00:00Z",
	}, {
		name: "several schedules, equal times once", schedules: []string{"0 */6 * * *", "0 12 * * *", "30 7 * * *"}, after: "2026-01-01T00:00:00Z",
		want: []string{"2026-01-01T06:00:00Z", "2026-01-01T07:30:00Z", "2026-01-01T12:00:00Z", "2026-01-01T18:00:00Z"},
	}, {
		name: "a schedule that never runs beside one that does", schedules: []string{"0 0 31 2 *", "@yearly"}, after: "2026-06-01T00:00:00Z",
		want: []string{"2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z", "2030-01-01T00:00:00Z"},
	}, {
		name: "a window, both ends included", schedules: []string{"@hourly"}, after: "2026-01-01T00:00:00Z",
		options: Options{NotBefore: at(t, "2026-02-01T10:00:00Z"), NotAfter: at(t, "2026-02-01T12:00:00Z")},
		want:    []string{"2026-02-01T10:00:00Z", "2026-02-01T11:00:00Z", "2026-02-01T12:00:00Z"},
	}, {
		name: "a window with fractions of a second", schedules: []string{"* * * * * *"}, after: "2026-01-01T00:00:00Z",
		options: Options{NotBefore: at(t, "2026-02-01T10:00:00.5Z"), NotAfter: at(t, "2026-02-01T10:00:02.5Z")},
		want:    []string{"2026-02-01T10:00:01Z", "2026-02-01T10:00:02Z"},
	}, {
		name: "a window without any run", schedules: []string{"@yearly"}, after: "2026-01-01T00:00:00Z",
		options: Options{NotAfter: at(t, "2026-12-31T23:59:59Z")},
	}, {
		name: "a window that ends before it begins", schedules: []string{"@hourly"}, after: "2026-01-01T00:00:00Z",
		options: Options{NotBefore: at(t, "2027-01-01T00:00:00Z"), NotAfter: at(t, "2026-12-31T00:00:00Z")},
	}, {
		name: "dates without runs", schedules: []string{"0 12 * * *"}, after: "2026-12-22T12:00:00Z",
		exclude: []string{"2026-12-24/2027-01-01", "2027-01-03"},
		want:    []string{"2026-12-23T12:00:00Z", "2027-01-02T12:00:00Z", "2027-01-04T12:00:00Z", "2027-01-05T12:00:00Z"},
	}, {
		name: "dates that overlap and touch, in any order", schedules: []string{"0 12 * * *"}, after: "2026-12-22T12:00:00Z",
		exclude: []string{"2026-12-26", "2026-12-24/2026-12-25", "2026-12-25/2026-12-28", "2026-12-25"},
		want:    []string{"2026-12-23T12:00:00Z", "2026-12-29T12:00:00Z", "2026-12-30T12:00:00Z", "2026-12-31T12:00:00Z"},
	}, {
		name: "dates are those of the zone", schedules: []string{"0 */8 * * *"}, zone: "Asia/Tokyo", after: "2026-05-01T16:00:00+09:00",
		exclude: []string{"2026-05-02"},
		want:    []string{"2026-05-03T00:00:00+09:00", "2026-05-03T08:00:00+09:00", "2026-05-03T16:00:00+09:00", "2026-05-04T00:00:00+09:00"},
	}, {
		name: "dates hold for @every", schedules: []string{"@every 8h"}, zone: "Asia/Tokyo", after: "2026-05-01T17:00:00+09:00",
		exclude: []string{"2026-05-02"},
		want:    []string{"2026-05-03T01:00:00+09:00", "2026-05-03T09:00:00+09:00", "2026-05-03T17:00:00+09:00", "2026-05-04T01:00:00+09:00"},
	}, {
		name: "a date that comes twice, its last hour too", schedules: []string{"30 * * * *"}, zone: "America/St_Johns", after: "2010-11-05T23:00:00-02:30",
		exclude: []string{"2010-11-06"}, // until midnight, and again from 23:01 on
		want:    []string{"2010-11-05T23:30:00-02:30", "2010-11-07T00:30:00-03:30", "2010-11-07T01:30:00-03:30", "2010-11-07T02:30:00-03:30"},
	}, {
		name: "a date around one that is left out", schedules: []string{"0 0 * * * *"}, zone: "America/St_Johns", after: "2010-11-06T22:30:00-02:30",
		exclude: []string{"2010-11-07"}, // its first minute came before the last hour of the sixth
		want:    []string{"2010-11-06T23:00:00-02:30", "2010-11-08T00:00:00-03:30", "2010-11-08T01:00:00-03:30", "2010-11-08T02:00:00-03:30"},
	}, {
		name: "a date that does not exist", schedules: []string{"0 12 * * *"}, zone: "Pacific/Apia", after: "2011-12-28T12:00:00-10:00",
		exclude: []string{"2011-12-30"},
		want:    []string{"2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00", "2012-01-01T12:00:00+14:00", "2012-01-02T12:00:00+14:00"},
	}, {
		name: "everything is excluded", schedules: []string{"* * * * *"}, after: "2026-01-01T00:00:00Z",
		exclude: []string{"0001-01-01/9999-12-31"},
	}, {
		name: "nothing after the year 9999", schedules: []string{"@yearly"}, after: "9997-06-01T00:00:00Z",
		want: []string{"9998-01-01T00:00:00Z", "9999-01-01T00:00:00Z"},
	}, {
		name: "always in the hour that is skipped", schedules: []string{"*/30 2 25-31 3 */7"}, zone: "Europe/Berlin", after: "1980-03-01T00:00:00+01:00",
		want: []string{"1980-03-30T02:00:00+01:00", "1980-03-30T02:30:00+01:00"},
	}, {
		name: "nothing before the year 1", schedules: []string{"@yearly"}, after: "0000-06-01T00:00:00Z",
		want: []string{"0001-01-01T00:00:00Z", "0002-01-01T00:00:00Z", "0003-01-01T00:00:00Z", "0004-01-01T00:00:00Z"},
	}, {
		name: "@every counts from the epoch", schedules: []string{"@every 7s"}, after: "1970-01-01T00:00:00Z",
		want: []string{"1970-01-01T00:00:07Z", "1970-01-01T00:00:14Z", "1970-01-01T00:00:21Z", "1970-01-01T00:00:28Z"},
	}, {
		name: "@every counts from the anchor", schedules: []string{"@every 1h"}, after: "2026-01-01T10:00:00Z",
		options: Options{Anchor: at(t, "2026-03-01T00:20:05.7Z")},
		want:    []string{"2026-01-01T10:20:05Z", "2026-01-01T11:20:05Z", "2026-01-01T12:20:05Z", "2026-01-01T13:20:05Z"},
	}, {
		name: "asked in the middle of a second", schedules: []string{"* * * * * *"}, after: "2026-01-01T10:00:00.9Z",
		want: []string{"2026-01-01T10:00:01Z", "2026-01-01T10:00:02Z", "2026-01-01T10:00:03Z", "2026-01-01T10:00:04Z"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.options
			o.Location = mustLoad(t, tt.zone)
			for _, text := range tt.schedules {
				o.Schedules = append(o.Schedules, mustParse(t, text, ""))
			}
			for _, text := range tt.exclude {
				r, err := ParseDateRange(text)
				if err != nil {
					t.Fatal(err)
				}
				o.ExcludeDates = append(o.ExcludeDates, r)
			}
			p := mustNew(t, o)
			if diff := cmp.Diff(tt.want, runs(p, at(t, tt.after), 4)); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrev(t *testing.T) {
	tests := []struct {
		name, zone, schedule, before string
		want                         string
	}{
		{"a run is not before itself", "", "@hourly", "2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z"},
		{"but it is before the next nanosecond", "", "@hourly", "2026-01-01T10:00:00.000000001Z", "2026-01-01T10:00:00Z"},
		{"a run that was caught up", "Europe/Berlin", "30 2 * * *", "2026-03-29T12:00:00+02:00", "2026-03-29T03:00:00+02:00"},
		{"the first of a repeated hour", "Europe/Berlin", "30 2 * * *", "2026-10-25T12:00:00+01:00", "2026-10-25T02:30:00+02:00"},
		{"asked in the repeated hour", "Europe/Berlin", "30 2 * * *", "2026-10-25T02:45:00+01:00", "2026-10-25T02:30:00+02:00"},
		{"decades ago", "Europe/Berlin", "0 0 29 2 */7", "2032-02-01T00:00:00Z", "2004-02-29T00:00:00+01:00"},
		{"never", "", "0 0 31 2 *", "2026-01-01T10:00:00Z", ""},
		{"not before the year 1", "", "@yearly", "0001-01-01T00:00:00Z", ""},
		{"every", "", "@every 7s", "1970-01-01T00:00:00Z", "1969-12-31T23:59:53Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, tt.schedule, "")}, Location: mustLoad(t, tt.zone)})
			var got string
			if run, ok := p.Prev(at(t, tt.before)); ok {
				got = run.Format(time.RFC3339)
			}
			if got != tt.want {
				t.Errorf("Prev(%s) of %q = %s, want %s", tt.before, tt.schedule, got, tt.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	tests := []struct {
		name, zone  string
		schedules   []string
		after, upTo string
		want        int
	}{
		{"nothing in an empty range", "", []string{"* * * * *"}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 0},
		{"nothing in a range that is reversed", "", []string{"* * * * *"}, "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", 0},
		{"the first end is not in, the second is", "", []string{"@hourly"}, "2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z", 2},
		{"every second of ten years", "Europe/Berlin", []string{"* * * * * *"}, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", 3653 * 86400},
		{"every minute of ten years", "America/New_York", []string{"* * * * *"}, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", 3653 * 1440},
		{"a day is a day, in Berlin too", "Europe/Berlin", []string{"30 2 * * *"}, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", 3653},
		{"all leap days", "", []string{"0 0 29 2 *"}, "2000-01-01T00:00:00Z", "2400-01-01T00:00:00Z", 97},
		{"all leap days that are Sundays", "", []string{"0 0 29 2 */7"}, "2000-01-01T00:00:00Z", "2400-01-01T00:00:00Z", 13},
		{"all Sundays", "", []string{"0 0 * * SUN"}, "2000-01-01T00:00:00Z", "2400-01-01T00:00:00Z", 20871},
		{"every two seconds of all time", "", []string{"@every 2s"}, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", 157768948799},
		{"two schedules that are one", "", []string{"* * * * *", "@every 60s"}, "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", 3653 * 1440},
		{"every second, every third", "", []string{"@every 2s", "@every 3s"}, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", 86400 * 2 / 3},
		{"never", "", []string{"0 0 31 2 *"}, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", 0},
		{"no schedules", "", nil, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Location: mustLoad(t, tt.zone)}
			for _, text := range tt.schedules {
				o.Schedules = append(o.Schedules, mustParse(t, text, ""))
			}
			if got := mustNew(t, o).Count(at(t, tt.after), at(t, tt.upTo)); got != tt.want {
				t.Errorf("Count = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestBetween(t *testing.T) {
	p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, "@hourly", "")}})
	from, to := at(t, "2026-01-01T00:00:00Z"), at(t, "2026-01-01T02:00:00Z")
	want := []time.Time{at(t, "2026-01-01T01:00:00Z"), to}
	if diff := cmp.Diff(want, slices.Collect(p.Between(from, to))); diff != "" {
		t.Errorf("Between (-want +got):\n%s", diff)
	}
	for range p.Between(from, to) {
		break // a caller that stops early
	}
}

func TestNewRefusesUnknownRules(t *testing.T) {
	if _, err := New(Options{DaylightSaving: "Twice"}); err == nil {
		t.Error("New accepted an unknown rule for daylight saving")
	}
}
