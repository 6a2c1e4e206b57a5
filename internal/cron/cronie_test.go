package cron

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests in this file check the rules and examples of the manual pages crontab(5) and cron(8) of
// cronie, in their order.

func TestCrontab5Examples(t *testing.T) {
	// 1 March 2026 is a Sunday.
	tests := []struct {
		name, schedule string
		want           []string // after 2026-03-01 00:00:00
	}{
		{"every day, five minutes past midnight", "5 0 * * *",
			[]string{"03-01 00:05", "03-02 00:05", "03-03 00:05"}},
		{"on the first of every month, at a quarter past two in the afternoon", "15 14 1 * *",
			[]string{"03-01 14:15", "04-01 14:15", "05-01 14:15"}},
		{"on working days, at ten in the evening", "0 22 * * 1-5",
			[]string{"03-02 22:00", "03-03 22:00", "03-04 22:00", "03-05 22:00", "03-06 22:00", "03-09 22:00"}},
		{"every other hour from midnight on, 23 minutes past it", "23 0-23/2 * * *",
			[]string{"03-01 00:23", "03-01 02:23", "03-01 04:23"}},
		{"on Sundays, five minutes past four", "5 4 * * sun",
			[]string{"03-01 04:05", "03-08 04:05", "03-15 04:05"}},
		{"on the first, on the fifteenth, and on every Friday besides, at half past four", "30 4 1,15 * 5",
			[]string{"03-01 04:30", "03-06 04:30", "03-13 04:30", "03-15 04:30", "03-20 04:30"}},
		{"a range of hours has both of its ends", "0 8-11 * * *",
			[]string{"03-01 08:00", "03-01 09:00", "03-01 10:00", "03-01 11:00", "03-02 08:00"}},
		{"a list of numbers", "0 1,2,5,9 * * *",
			[]string{"03-01 01:00", "03-01 02:00", "03-01 05:00", "03-01 09:00", "03-02 01:00"}},
		{"a list of ranges", "0 0-4,8-12 2 * *",
			[]string{"03-02 00:00", "03-02 01:00", "03-02 02:00", "03-02 03:00", "03-02 04:00", "03-02 08:00", "03-02 09:00",
				"03-02 10:00", "03-02 11:00", "03-02 12:00", "04-02 00:00"}},
		{"a list of names", "0 0 * * mon,wed,fri",
			[]string{"03-02 00:00", "03-04 00:00", "03-06 00:00", "03-09 00:00"}},
		{"a range of names", "0 0 1 jan-mar *",
			[]string{"01-01 00:00", "02-01 00:00", "03-01 00:00", "01-01 00:00"}},
		{"a step counts within its field: at 0 and at 23 o'clock, not every 23 hours", "0 */23 * * *",
			[]string{"03-01 23:00", "03-02 00:00", "03-02 23:00", "03-03 00:00"}},
		{"and twice an hour, not every 35 minutes", "*/35 * * * *",
			[]string{"03-01 00:35", "03-01 01:00", "03-01 01:35", "03-01 02:00"}},
		{"what the page helps itself with there is @every here: minutes since the epoch that 58 divides", "@every 58m",
			[]string{"03-01 00:42", "03-01 01:40", "03-01 02:38"}},
		{"hours since the epoch that 23 divides", "@every 23h",
			[]string{"03-01 03:00", "03-02 02:00", "03-03 01:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, tt.schedule, "")}})
			var got []string
			for _, run := range runs(p, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), len(tt.want)) {
				got = append(got, strings.Replace(run[len("2026-"):len("2026-03-01T00:00")], "T", " ", 1))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("runs of %q (-want +got):\n%s", tt.schedule, diff)
			}
		})
	}
}

func TestCrontab5Synonyms(t *testing.T) {
	for _, same := range [][]string{
		{"0 0-23/2 * * *", "0 0,2,4,6,8,10,12,14,16,18,20,22 * * *"},
		{"* * * * *", "*/1 * * * *"},
		{"0 */2 * * *", "0 */2 */1 * *"},
		{"0 0 * * 0", "0 0 * * 7", "0 0 * * sun", "0 0 * * SUN", "0 0 * * Sun"},
		{"0 0 1 1 *", "@yearly", "@annually", "0 0 1 jan *"},
		{"0 0 1 * *", "@monthly"},
		{"0 0 * * 0", "@weekly"},
		{"0 0 * * *", "@daily", "@midnight"},
		{"0 * * * *", "@hourly"},
	} {
		want := *mustParse(t, same[0], "")
		for _, text := range same[1:] {
			got := *mustParse(t, text, "")
			got.text = want.text
			if got != want {
				t.Errorf("%q is %+v, want it to be %q, %+v", text, got, same[0], want)
			}
		}
	}
}

func TestCrontab5IsRefused(t *testing.T) {
	tests := []struct{ name, schedule string }{
		{"the first number of a range is the smaller one", "0 11-8 * * *"},
		{"a random minute, which would be another one after each restart", "6~15 * * * *"},
		{"any random minute", "~ * * * *"},
		{"a time zone has a field of its own", "CRON_TZ=Japan 5 0 * * *"},
		{"after a boot", "@reboot"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if s, err := Parse(tt.schedule, ""); err == nil {
				t.Errorf("Parse(%q) = %+v, want an error", tt.schedule, s)
			}
		})
	}
}

// TestCron8 checks the section on daylight saving. crontab(5) has another rule, which cronie
// applies to tables with their own zone; that is Literal.
func TestCron8(t *testing.T) {
	const spring, autumn = "2026-03-08T00:00:00-05:00", "2026-11-01T00:00:00-04:00" // in New York
	tests := []struct {
		name, zone, schedule, after string
		want                        []string
		literal                     []string
	}{
		{"one hour forward: what would have run in the hour runs immediately", "America/New_York", "30 2 * * *", spring,
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"},
			[]string{"2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"}},
		{"backward: nothing runs twice", "America/New_York", "30 1 * * *", autumn,
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"}},
		{"what runs more often than that runs as always, forward", "America/New_York", "*/30 * * * *", "2026-03-08T01:00:00-05:00",
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00"},
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00"}},
		{"and backward", "America/New_York", "0 * * * *", autumn,
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00"},
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00"}},
		{"a change of more than three hours is a correction: the new time counts at once", "Pacific/Kwajalein", "0 12 * * *", "1993-08-20T00:00:00-12:00",
			[]string{"1993-08-20T12:00:00-12:00", "1993-08-22T12:00:00+12:00"},
			[]string{"1993-08-20T12:00:00-12:00", "1993-08-22T12:00:00+12:00"}},
		{"backward too", "Pacific/Kwajalein", "0 12 * * *", "1969-09-30T00:00:00+11:00",
			[]string{"1969-09-30T12:00:00+11:00", "1969-09-30T12:00:00-12:00", "1969-10-01T12:00:00-12:00"},
			[]string{"1969-09-30T12:00:00+11:00", "1969-09-30T12:00:00-12:00", "1969-10-01T12:00:00-12:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Schedules: []*Schedule{mustParse(t, tt.schedule, "")}, Location: mustLoad(t, tt.zone)}
			if diff := cmp.Diff(tt.want, runs(mustNew(t, o), at(t, tt.after), len(tt.want))); diff != "" {
				t.Errorf("runs of %q with Once (-want +got):\n%s", tt.schedule, diff)
			}
			o.DaylightSaving = Literal
			if diff := cmp.Diff(tt.literal, runs(mustNew(t, o), at(t, tt.after), len(tt.literal))); diff != "" {
				t.Errorf("runs of %q with Literal (-want +got):\n%s", tt.schedule, diff)
			}
		})
	}
}
