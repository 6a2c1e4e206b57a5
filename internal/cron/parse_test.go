package cron

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runs returns up to n runs after a time, in the zone of the plan.
func runs(p *Plan, after time.Time, n int) []string {
	var all []string
	for t, ok := p.Next(after); ok && len(all) < n; t, ok = p.Next(t) {
		all = append(all, t.Format(time.RFC3339))
	}
	return all
}

func mustParse(t testing.TB, text, key string) *Schedule {
	t.Helper()
	s, err := Parse(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustNew(t testing.TB, o Options) *Plan {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLoad(t testing.TB, name string) *time.Location {
	t.Helper()
	l, err := LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	// 1 January 2026 is a Thursday.
	tests := []struct {
		name, text string
		want       []string // after 2026-01-01T00:00:00Z
	}{
		{"two lists", "0,30 8,20 * * *", []string{"2026-01-01T08:00:00Z", "2026-01-01T08:30:00Z", "2026-01-01T20:00:00Z"}},
		{"months by name, in a range", "0 0 1 nov-DEC *", []string{"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-11-01T00:00:00Z"}},
		{"a step larger than the range leaves the first value", "*/99 5 * * *", []string{"2026-01-01T05:00:00Z", "2026-01-02T05:00:00Z"}},
		{"a value with a step goes on to the end, as in robfig/cron", "40/10 3 * * *", []string{"2026-01-01T03:40:00Z", "2026-01-01T03:50:00Z", "2026-01-02T03:40:00Z"}},
		{"a day with a step ends on Saturday, as in robfig/cron", "0 0 * * 5/2", []string{"2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"}},
		{"0 is Sunday", "0 0 * * 0", []string{"2026-01-04T00:00:00Z"}},
		{"7 is Sunday", "0 0 * * 7", []string{"2026-01-04T00:00:00Z"}},
		{"a range to 7", "0 0 * * 5-7", []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-09T00:00:00Z"}},
		{"a range to Sunday by name", "0 0 * * FRI-SUN", []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z", "2026-01-09T00:00:00Z"}},
		{"a question mark is a star", "0 0 ? * ?", []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"}},
		{"six fields begin with seconds", "*/20 0 0 * * *", []string{"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-02T00:00:00Z"}},
		{"a day that begins with a star is not restricted: both of them", "0 0 */2 * MON", []string{"2026-01-05T00:00:00Z", "2026-01-19T00:00:00Z"}},
		{"the same for the day of the week", "0 0 13 * */2", []string{"2026-01-13T00:00:00Z", "2026-06-13T00:00:00Z"}},
		{"a list that begins with a star", "0 0 *,13 * MON", []string{"2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"}},
		{"a list with a star behind is restricted", "0 0 13,* * MON", []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"}},
		{"29 February", "0 0 29 2 *", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"29 February on a Sunday", "0 0 29 2 */7", []string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z", "2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"}},
		{"29 February or any Monday in February", "0 0 29 2 MON", []string{"2026-02-02T00:00:00Z", "2026-02-09T00:00:00Z"}},
		{"31 February never comes", "0 0 31 2 *", nil},
		{"31 February comes on Mondays", "0 0 31 2 MON", []string{"2026-02-02T00:00:00Z"}},
		{"the last of the year", "59 59 23 31 12 *", []string{"2026-12-31T23:59:59Z", "2027-12-31T23:59:59Z"}},
		{"@yearly", "@yearly", []string{"2027-01-01T00:00:00Z"}},
		{"@annually", "@annually", []string{"2027-01-01T00:00:00Z"}},
		{"@monthly", "@monthly", []string{"2026-02-01T00:00:00Z"}},
		{"@weekly", "@weekly", []string{"2026-01-04T00:00:00Z"}},
		{"@daily", "@daily", []string{"2026-01-02T00:00:00Z"}},
		{"@midnight", "@midnight", []string{"2026-01-02T00:00:00Z"}},
		{"@hourly", "@hourly", []string{"2026-01-01T01:00:00Z"}},
		{"@every", "@every 1h30m", []string{"2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z"}},
		{"space around and between", " \t0\t12  * * *\r\n", []string{"2026-01-01T12:00:00Z"}},
		{"zeros in front", "05 004 01 01 00", []string{"2026-01-01T04:05:00Z", "2026-01-04T04:05:00Z"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, tt.text, "")}})
			got := runs(p, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), max(1, len(tt.want)))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("runs of %q (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	const (
		minuteRange = "must be 0 to 59"
		step        = "the step after the slash must be a number from 1 to 9999"
		every       = `must be a single duration of whole seconds, at least 1s, such as "90s" or "1h30m"`
		nickname    = "must be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every DURATION, without other fields"
		backwards   = "the range runs backwards; write the smaller value first, or two ranges: "
		fromLast    = "the number of days after L must be from 1 to 30"
		nth         = "the number after # must be from 1 to 5"
		noWeekday   = "must have a day of the week before L or #, such as 5L for the last Friday and 2#1 for the first Tuesday"
		hForms      = "H must be written H, H/n, H(a-b) or H(a-b)/n"
	)
	tests := []struct {
		name string
		want ParseError // of parsing its Text
	}{
		{"minute too large", ParseError{"61 * * * *", "minute", 0, "61", minuteRange}},
		{"hour too large", ParseError{"0 24 * * *", "hour", 2, "24", "must be 0 to 23"}},
		{"day of month zero", ParseError{"0 0 0 * *", "day of month", 4, "0", "must be 1 to 31"}},
		{"month too large, in a list", ParseError{"0 0 1 1,13 *", "month", 8, "13", "must be 1 to 12 or JAN to DEC"}},
		{"day of week too large, in a range", ParseError{"0 0 * * 1-8", "day of week", 10, "8", "must be 0 to 7 (0 and 7 are Sunday) or SUN to SAT"}},
		{"second too large", ParseError{"60 0 0 * * *", "second", 0, "60", minuteRange}},
		{"negative", ParseError{"-1 * * * *", "minute", 0, "-1", "a range must have two values, each 0 to 59"}},
		{"not a number", ParseError{"x * * * *", "minute", 0, "x", minuteRange}},
		{"two stars", ParseError{"0 ** * * *", "hour", 2, "**", "must be 0 to 23"}},
		{"a name in the wrong field", ParseError{"0 0 MON * *", "day of month", 4, "MON", "must be 1 to 31"}},
		{"a full name", ParseError{"0 0 * * monday", "day of week", 8, "monday", "must be 0 to 7 (0 and 7 are Sunday) or SUN to SAT"}},
		{"a range that runs backwards", ParseError{"0 22-2 * * *", "hour", 2, "22-2", backwards + "22-23,0-2"}},
		{"days that run backwards", ParseError{"0 0 * * SAT-MON", "day of week", 8, "SAT-MON", backwards + "6,0-1"}},
		{"months that run backwards", ParseError{"0 0 1 NOV-FEB *", "month", 6, "NOV-FEB", backwards + "11-12,1-2"}},
		{"step zero", ParseError{"*/0 * * * *", "minute", 0, "*/0", step}},
		{"step missing", ParseError{"*/ * * * *", "minute", 0, "*/", step}},
		{"two steps", ParseError{"*/2/3 * * * *", "minute", 0, "*/2/3", step}},
		{"a step that is huge", ParseError{"*/99999 * * * *", "minute", 0, "*/99999", step}},
		{"a comma too many", ParseError{"1, * * * *", "minute", 0, "1,", "has an empty list entry; must have *, H, or 0 to 59 on both sides of a comma"}},
		{"only a step", ParseError{"/5 * * * *", "minute", 0, "/5", "must have *, H, or 0 to 59 before the slash"}},
		{"an open range", ParseError{"5- * * * *", "minute", 0, "5-", "a range must have two values, each 0 to 59"}},
		{"a full name with an L", ParseError{"0 0 * jul-july *", "month", 10, "july", "must be 1 to 12 or JAN to DEC"}},
		{"the last day in another field", ParseError{"0 L * * *", "hour", 2, "L", misplaced}},
		{"a weekday near a day in another field", ParseError{"0 0 1 15W *", "month", 6, "15W", misplaced}},
		{"an nth day of the week in another field", ParseError{"0 0 1#2 * *", "day of month", 4, "1#2", misplaced}},
		{"a weekday near a day of the week", ParseError{"0 0 * * 5W", "day of week", 8, "5W", misplaced}},
		{"a last day of the month by its date", ParseError{"0 0 5L * *", "day of month", 4, "5L", misplaced}},
		{"W without a date", ParseError{"0 0 W * *", "day of month", 4, "W", misplaced}},
		{"letters in the wrong order", ParseError{"0 0 WL * *", "day of month", 4, "WL", misplaced}},
		{"W before the distance", ParseError{"0 0 LW-3 * *", "day of month", 4, "LW", misplaced}},
		{"W with a step", ParseError{"0 0 15W/2 * *", "day of month", 4, "15W", misplaced}},
		{"a range of W", ParseError{"0 0 1-15W * *", "day of month", 6, "15W", misplaced}},
		{"a range of last days of the week", ParseError{"0 0 * * 1-5L", "day of week", 10, "5L", misplaced}},
		{"the last day with a step", ParseError{"0 0 L/2 * *", "day of month", 4, "L", misplaced}},
		{"no days before the last", ParseError{"0 0 L-0 * *", "day of month", 4, "L-0", fromLast}},
		{"too many days before the last", ParseError{"0 0 1,L-31W * *", "day of month", 6, "L-31W", fromLast}},
		{"an open distance", ParseError{"0 0 L- * *", "day of month", 4, "L-", fromLast}},
		{"W near no date", ParseError{"0 0 32W * *", "day of month", 4, "32", "must be 1 to 31"}},
		{"the last day of the week is ambiguous", ParseError{"0 0 * * L", "day of week", 8, "L", noWeekday}},
		{"a number without a day of the week", ParseError{"0 0 * * MON,#2", "day of week", 12, "#2", noWeekday}},
		{"the sixth Monday", ParseError{"0 0 * * MON#6", "day of week", 8, "MON#6", nth}},
		{"the zeroth Monday", ParseError{"0 0 * * 1#0", "day of week", 8, "1#0", nth}},
		{"Mondays without a number", ParseError{"0 0 * * 1#", "day of week", 8, "1#", nth}},
		{"two numbers", ParseError{"0 0 * * 1#2#3", "day of week", 8, "1#2#3", nth}},
		{"no such day of the week", ParseError{"0 0 * * 8#1", "day of week", 8, "8", "must be 0 to 7 (0 and 7 are Sunday) or SUN to SAT"}},
		{"random values of cronie", ParseError{"0~30 * * * *", "minute", 0, "0~30", "random values are not supported; write H(a-b) for a value that is derived from the name"}},
		{"H with a value", ParseError{"H5 * * * *", "minute", 0, "H5", hForms}},
		{"H with one bound", ParseError{"H(5) * * * *", "minute", 0, "H(5)", hForms}},
		{"H without the end", ParseError{"H(0-5 * * * *", "minute", 0, "H(0-5", hForms}},
		{"H with a wrong bound", ParseError{"0 H(0-24) * * *", "hour", 6, "24", "must be 0 to 23"}},
		{"H that runs backwards", ParseError{"H(9-5) * * * *", "minute", 2, "9-5", backwards + "9-59,0-5"}},
		{"H with a step that does not fit", ParseError{"H(0-9)/11 * * * *", "minute", 0, "H(0-9)/11", "the step must be at most 10, the number of values from 0 to 9"}},
		{"H/n with a step that does not fit", ParseError{"0 0 H/29 * *", "day of month", 4, "H/29", "the step must be at most 28, the number of values from 1 to 28"}},
		{"h in small", ParseError{"h * * * *", "minute", 0, "h", minuteRange}},
		{"four fields", ParseError{"0 0 * *", "", 6, "", "has 4 fields; must have 5 (minute, hour, day of month, month, day of week) or 6 (second before them)"}},
		{"seven fields", ParseError{"0 0 0 * * * 2026", "", 12, "", "has 7 fields; must have 5 (minute, hour, day of month, month, day of week) or 6 (second before them)"}},
		{"empty", ParseError{"", "", 0, "", "is empty; must be five fields, six fields with leading seconds, or a nickname such as @daily"}},
		{"only space", ParseError{" \n", "", 0, "", "is empty; must be five fields, six fields with leading seconds, or a nickname such as @daily"}},
		{"a time zone", ParseError{"TZ=Asia/Tokyo 0 0 * * *", "", 0, "TZ=Asia/Tokyo", `the time zone does not belong in the schedule; set spec.timeZone to "Asia/Tokyo"`}},
		{"a time zone of cronie", ParseError{"CRON_TZ=UTC @daily", "", 0, "CRON_TZ=UTC", `the time zone does not belong in the schedule; set spec.timeZone to "UTC"`}},
		{"at boot", ParseError{"@reboot", "", 0, "@reboot", "@reboot is not supported; request a run on demand instead"}},
		{"unknown nickname", ParseError{"@fortnightly", "", 0, "@fortnightly", nickname}},
		{"nicknames are written small", ParseError{"@Daily", "", 0, "@Daily", nickname}},
		{"a nickname with more", ParseError{"@daily *", "", 0, "@daily", nickname}},
		{"every what", ParseError{"@every", "duration", 6, "", every}},
		{"every half second", ParseError{"@every 500ms", "duration", 7, "500ms", every}},
		{"every one and a half seconds", ParseError{"@every 1500ms", "duration", 7, "1500ms", every}},
		{"every negative time", ParseError{"@every -5s", "duration", 7, "-5s", every}},
		{"every number", ParseError{"@every 5", "duration", 7, "5", every}},
		{"every two durations", ParseError{"@every 1h 30m", "duration", 6, "", every}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.want.Text, "")
			var got *ParseError
			if !errors.As(err, &got) {
				t.Fatalf("Parse(%q) = %v, want a *ParseError", tt.want.Text, err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tt.want.Text, diff)
			}
		})
	}
}

func TestParseErrorReadsAsASentence(t *testing.T) {
	tests := []struct{ text, want string }{
		{"61 * * * *", `"61 * * * *": minute "61": must be 0 to 59`},
		{"* * * *", `"* * * *": has 4 fields; must have 5 (minute, hour, day of month, month, day of week) or 6 (second before them)`},
		{"@every 5", `"@every 5": duration "5": must be a single duration of whole seconds, at least 1s, such as "90s" or "1h30m"`},
	}
	for _, tt := range tests {
		_, err := Parse(tt.text, "")
		if err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%q) = %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	all := func(from, to string) string { return from + strings.Repeat(","+to, 59) }
	longest := strings.Join([]string{all("00", "59"), all("00", "59"), all("00", "23"), all("01", "31"), all("01", "12"), "0,1,2,3,4,5,6"}, " ")
	mustParse(t, longest, "")
	_, err := Parse("0"+strings.Repeat(",0", 60)+" * * * *", "")
	if want := `minute "` + strings.Repeat("0,", 50) + `...": has 61 entries; must have at most 60`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Parse of 61 entries = %v, want %s", err, want)
	}
	_, err = Parse(longest+strings.Repeat(" ", MaxLength), "")
	var got *ParseError
	if !errors.As(err, &got) {
		t.Fatalf("Parse of too much = %v, want a *ParseError", err)
	}
	if len(err.Error()) > 300 {
		t.Errorf("The error has %d bytes, want a readable one", len(err.Error()))
	}
}

// TestHash is a promise: other values would move the runs of every user of H or jitter.
func TestHash(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name, text, key string
		want            []string
	}{
		{"one value for each field", "H H * * *", "default/backup", []string{"2026-01-01T00:03:00Z", "2026-01-02T00:03:00Z"}},
		{"another key", "H H * * *", "default/backup2", []string{"2026-01-01T22:41:00Z", "2026-01-02T22:41:00Z"}},
		{"seconds", "H H H * * *", "default/backup", []string{"2026-01-01T00:03:43Z", "2026-01-02T00:03:43Z"}},
		{"a range", "H H(9-17) * * *", "default/backup", []string{"2026-01-01T15:03:00Z", "2026-01-02T15:03:00Z"}},
		{"steps", "H/20 5 * * *", "default/backup", []string{"2026-01-01T05:03:00Z", "2026-01-01T05:23:00Z", "2026-01-01T05:43:00Z", "2026-01-02T05:03:00Z"}},
		{"steps in a range", "H(10-40)/10 5 * * *", "default/backup", []string{"2026-01-01T05:13:00Z", "2026-01-01T05:23:00Z", "2026-01-01T05:33:00Z", "2026-01-02T05:13:00Z"}},
		{"a day that every month has", "0 0 H * *", "default/backup", []string{"2026-01-25T00:00:00Z", "2026-02-25T00:00:00Z"}},
		{"a day of the week", "0 0 * * H", "default/backup", []string{"2026-01-08T00:00:00Z", "2026-01-15T00:00:00Z"}},
		{"working days", "0 0 * * H(1-5)", "default/backup", []string{"2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"}},
		{"a month", "0 0 1 H *", "default/backup", []string{"2026-08-01T00:00:00Z", "2027-08-01T00:00:00Z"}},
		{"in a list", "H,30 0 * * *", "default/backup", []string{"2026-01-01T00:03:00Z", "2026-01-01T00:30:00Z", "2026-01-02T00:03:00Z"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, tt.text, tt.key)}})
			if diff := cmp.Diff(tt.want, runs(p, day, len(tt.want))); diff != "" {
				t.Errorf("runs of %q (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}

func TestHashSpreads(t *testing.T) {
	var minutes [60]int
	for i := range 6000 {
		s := mustParse(t, "H * * * *", "default/job-"+time.Duration(i).String())
		for m := range minutes {
			minutes[m] += int(s.minute >> m & 1)
		}
	}
	for m, n := range minutes {
		if n < 60 || n > 140 { // 100 are expected; these are four standard deviations
			t.Errorf("Minute %d stands for %d of 6000 keys", m, n)
		}
	}
}

func TestJitter(t *testing.T) {
	nominal := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		key   string
		at    time.Time
		limit time.Duration
		want  time.Duration
	}{
		{"none", "default/backup", nominal, 0, 0},
		{"negative", "default/backup", nominal, -time.Second, 0},
		{"a minute", "default/backup", nominal, time.Minute, 56157 * time.Millisecond},
		{"the same in another zone", "default/backup", nominal.In(time.FixedZone("", 3600)), time.Minute, 56157 * time.Millisecond},
		{"another time", "default/backup", nominal.Add(time.Second), time.Minute, 18454 * time.Millisecond},
		{"another object", "default/restore", nominal, time.Minute, 37347 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Jitter(tt.key, tt.at, tt.limit); got != tt.want {
				t.Errorf("Jitter = %s, want %s", got, tt.want)
			}
		})
	}
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		j := Jitter("default/backup", nominal.Add(time.Duration(i)*time.Hour), 3*time.Millisecond)
		if j < 0 || j > 3*time.Millisecond {
			t.Fatalf("Jitter = %s, want 0 to 3ms", j)
		}
		seen[j] = true
	}
	if len(seen) != 4 {
		t.Errorf("Jitter gives %d different values of 0, 1, 2 and 3 ms", len(seen))
	}
}

func TestParseErrorDetail(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"61 * * * *", `minute "61", character 1: must be 0 to 59`},
		{"0 ü-3 * * *", `hour "ü", character 3: must be 0 to 23`},
		{"ü 30 * * x * *", `has 7 fields; must have 5 (minute, hour, day of month, month, day of week) or 6 (second before them)`},
		{"@every", `duration: must be a single duration of whole seconds, at least 1s, such as "90s" or "1h30m"`},
		{"  @Daily", `"@Daily", character 3: must be one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every DURATION, without other fields`},
		{"", "is empty; must be five fields, six fields with leading seconds, or a nickname such as @daily"},
	} {
		_, err := Parse(test.text, "a/b")
		var parse *ParseError
		if !errors.As(err, &parse) {
			t.Fatalf("%q: got %v, want a ParseError", test.text, err)
		}
		if got := parse.Detail(test.text); got != test.want {
			t.Errorf("%q: got\n%s, want\n%s", test.text, got, test.want)
		}
	}
}
