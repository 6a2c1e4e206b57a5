package cron

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// relativePatterns are the forms of L, W and #, as the page describes them.
var relativePatterns = map[int]*regexp.Regexp{
	dayOfMonth: regexp.MustCompile(`^(?i:(L)(?:-(0{0,3}[1-9]|0{0,2}[12][0-9]|0{0,2}30))?(W?)|(0{0,3}[1-9]|0{0,2}[12][0-9]|0{0,2}3[01])(W))$`),
	dayOfWeek:  regexp.MustCompile(`^(0{0,3}[0-7]|(?i:SUN|MON|TUE|WED|THU|FRI|SAT))(?:(?i:(L))|#([1-5]))$`),
}

// relativeItems are the items with L, W or # in a field of a text, as relativePatterns takes them apart.
func relativeItems(text string, f int) (items [][]string) {
	words := strings.Fields(text)
	if len(words) < 5 {
		return nil
	}
	for item := range strings.SplitSeq(words[len(words)-fieldCount+f], ",") {
		if m := relativePatterns[f].FindStringSubmatch(item); m != nil {
			items = append(items, m)
		}
	}
	return items
}

// readItems are the results of relativeItems by text and field: reading a text takes longer than all else, and it is tested on many days.
var readItems = map[string]map[int][][]string{}

// slowRelative reports whether a date matches an item with L, W or # in a field: it reads the text again, and walks over the
// days of the month.
func slowRelative(s *Schedule, f int, date time.Time) bool {
	if !strings.ContainsAny(s.text, "LlWw#") {
		return false
	}
	if readItems[s.text] == nil {
		readItems[s.text] = map[int][][]string{dayOfMonth: relativeItems(s.text, dayOfMonth), dayOfWeek: relativeItems(s.text, dayOfWeek)}
	}
	return slices.ContainsFunc(readItems[s.text][f], func(m []string) bool {
		if f == dayOfWeek {
			return slowNth(m[1], m[3], date)
		}
		return slowDate(m, date)
	})
}

// slowNth reports whether a date is the nth, or without a number the last, of its days of the week.
func slowNth(weekday, number string, date time.Time) bool {
	want, err := strconv.Atoi(weekday)
	if err != nil {
		want = strings.Index("SUNMONTUEWEDTHUFRISAT", strings.ToUpper(weekday)) / 3
	}
	if int(date.Weekday()) != want%7 {
		return false
	}
	if number == "" {
		return date.AddDate(0, 0, 7).Month() != date.Month()
	}
	n := 0
	for day := date; day.Month() == date.Month(); day = day.AddDate(0, 0, -7) {
		n++
	}
	return fmt.Sprint(n) == number
}

// slowDate reports whether a date is that of the parts of an item.
func slowDate(m []string, date time.Time) bool {
	last := time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	at, _ := strconv.Atoi(m[4])
	if m[1] != "" {
		before, _ := strconv.Atoi(m[2])
		at = last - before
	}
	if at < 1 || at > last {
		return false
	}
	if m[3]+m[5] == "" {
		return date.Day() == at
	}
	nearest := 0
	for day := 1; day <= last; day++ {
		distance := func(n int) int { return max(n-at, at-n) }
		weekday := (int(date.Weekday()) + day - date.Day() + 35) % 7
		if weekday != int(time.Saturday) && weekday != int(time.Sunday) && (nearest == 0 || distance(day) < distance(nearest)) {
			nearest = day
		}
	}
	return date.Day() == nearest
}

// randomRelative returns a day field with one or two items, most of them with L, W or #.
func randomRelative(r *rand.Rand, f int) string {
	var items []string
	for range 1 + r.IntN(2) {
		forms := []string{"L", fmt.Sprintf("L-%d", 1+r.IntN(30)), "LW", fmt.Sprintf("l-%dw", 1+r.IntN(30)), fmt.Sprintf("%dW", 1+r.IntN(31)),
			[]string{"1W", "31W", "29W", "L-1W", "L-30", "L-28"}[r.IntN(6)], fmt.Sprint(1 + r.IntN(31))}
		if f == dayOfWeek {
			forms = []string{fmt.Sprintf("%dL", r.IntN(8)), "friL", fmt.Sprintf("%d#%d", r.IntN(8), 1+r.IntN(5)), fmt.Sprintf("SUN#%d", 1+r.IntN(5)), fmt.Sprint(r.IntN(7))}
		}
		items = append(items, forms[r.IntN(len(forms))])
	}
	return strings.Join(items, ",")
}

// TestRelativeDaysAgreeWithTheCalendar compares schedules with L, W and # with a walk over the days of 29 years: weekdays and leap years repeat after 28.
func TestRelativeDaysAgreeWithTheCalendar(t *testing.T) {
	from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(29, 0, 0)
	fields := func(r *rand.Rand) string {
		days := []string{"*", "*", "*/2", "*/7", "1-7", "29,31", "?", "H"}
		date, weekday := days[r.IntN(len(days))], days[r.IntN(5)]
		switch r.IntN(3) {
		case 0:
			date = randomRelative(r, dayOfMonth)
		case 1:
			weekday = randomRelative(r, dayOfWeek)
		default:
			date, weekday = randomRelative(r, dayOfMonth), randomRelative(r, dayOfWeek)
		}
		return fmt.Sprintf("%s %s %s", date, []string{"*", "2", "2,9", "*/5"}[r.IntN(4)], weekday)
	}
	for seed := range uint64(100) {
		text := "0 0 " + fields(rand.New(rand.NewPCG(seed, 3)))
		s := mustParse(t, text, "")
		p := mustNew(t, Options{Schedules: []*Schedule{s}})
		var want []time.Time
		for day := from; day.Before(to); day = day.AddDate(0, 0, 1) {
			if slowMatch(s, day) {
				want = append(want, day)
			}
		}
		if got := slices.Collect(p.Between(from.Add(-1), to.Add(-1))); !slices.Equal(want, got) { // cmp alone takes most of the time
			t.Fatalf("runs of %q (-want +got):\n%s", text, cmp.Diff(want, got))
		}
		var back []time.Time
		for run, ok := p.Prev(to); ok && !run.Before(from); run, ok = p.Prev(run) {
			back = append(back, run)
		}
		slices.Reverse(back)
		if !slices.Equal(want, back) {
			t.Fatalf("runs of %q backwards (-want +got):\n%s", text, cmp.Diff(want, back))
		}
		if got := p.Count(from.Add(-1), to.Add(-1)); got != len(want) {
			t.Errorf("Count of %q = %d, want %d", text, got, len(want))
		}
		if s.never != (want == nil) {
			t.Errorf("never of %q = %t, but it has %d runs", text, s.never, len(want))
		}
	}
}

func TestRelativeDays(t *testing.T) {
	// In 2026 February begins and ends on a Sunday and Saturday, and August begins on a Saturday.
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"the last day", "0 0 L * *", []string{"01-31", "02-28", "03-31", "04-30"}},
		{"the last day of a leap year's February", "0 0 L 2 *", []string{"02-28", "02-28", "02-29"}},
		{"days before the last", "0 0 L-3 * *", []string{"01-28", "02-25", "03-28"}},
		{"months that are too short have none", "0 0 L-30 * *", []string{"03-01", "05-01", "07-01"}},
		{"the last weekday", "0 0 LW * *", []string{"01-30", "02-27", "03-31", "04-30", "05-29"}},
		{"a weekday near a Sunday, a Sunday and a Wednesday", "0 0 15W 2-4 *", []string{"02-16", "03-16", "04-15"}},
		{"a weekday near a Saturday", "0 0 14W 2 *", []string{"02-13"}},
		{"a Saturday on the 1st stays in its month", "0 0 1W 8 *", []string{"08-03"}},
		{"a Sunday at the end stays in its month", "0 0 31W 5 *", []string{"05-29"}},
		{"a weekday near a date that does not exist", "0 0 31W 4-5 *", []string{"05-29", "05-31"}},
		{"a weekday near a day before the last", "0 0 L-1W 2 *", []string{"02-27"}},
		{"the last Friday", "0 0 * * 5L", []string{"01-30", "02-27", "03-27"}},
		{"by name, in small letters", "0 0 * * fril", []string{"01-30", "02-27", "03-27"}},
		{"the first Tuesday", "0 0 * * 2#1", []string{"01-06", "02-03", "03-03"}},
		{"0 and 7 are Sunday", "0 0 * * 0#2,7L", []string{"01-11", "01-25", "02-08", "02-22"}},
		{"a fifth Friday is rare", "0 0 * * FRI#5", []string{"01-30", "05-29", "07-31"}},
		{"in a list with dates", "0 0 1,L 2-3 *", []string{"02-01", "02-28", "03-01", "03-31"}},
		{"either of two restricted days", "0 0 L * FRI#1", []string{"01-02", "01-31", "02-06", "02-28"}},
		{"both, if one begins with a star", "0 0 L * */6", []string{"01-31", "02-28", "05-31"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, tt.text, "")}})
			var got []string
			for _, run := range runs(p, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), len(tt.want)) {
				got = append(got, run[len("2026-"):len("2026-01-01")])
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("runs of %q (-want +got):\n%s", tt.text, diff)
			}
		})
	}
}
