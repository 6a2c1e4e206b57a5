package cron

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// awkwardZones change their clocks in unusual ways, or often, or never.
var awkwardZones = []string{
	"UTC", "Asia/Kathmandu", "America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe",
	"America/Sao_Paulo", "America/St_Johns", "America/Havana", "Africa/Casablanca", "Africa/Cairo", "Asia/Tehran",
	"Asia/Gaza", "Asia/Amman", "Pacific/Apia", "Pacific/Kwajalein", "Antarctica/Troll", "Antarctica/Casey",
	"America/Asuncion", "Asia/Pyongyang",
}

// slowRuns tests a range second by second, or in larger steps. It implements the package
// documentation in the most obvious way.
func slowRuns(o Options, from, to time.Time, step int64) []time.Time {
	var all []time.Time
	for instant := from.Unix(); instant <= to.Unix(); instant += step {
		t := time.Unix(instant, 0).In(o.Location)
		if slices.ContainsFunc(o.Schedules, func(s *Schedule) bool { return slowRunsAt(o, s, t) }) && !slowExcluded(o, t) {
			all = append(all, t)
		}
	}
	return all
}

func slowRunsAt(o Options, s *Schedule, t time.Time) bool {
	if s.every > 0 {
		return (t.Unix()-o.Anchor.Unix())%s.every == 0
	}
	shown := wallOf(t)
	if s.wildcard || o.DaylightSaving == Literal {
		return slowMatch(s, shown)
	}
	skipped := wallOf(t).Sub(wallOf(t.Add(-time.Second))) - time.Second
	if skipped > 0 && skipped < 3*time.Hour {
		for back := time.Duration(0); back <= skipped; back += time.Second {
			if slowMatch(s, shown.Add(-back)) {
				return true
			}
		}
		return false
	}
	if !slowMatch(s, shown) {
		return false
	}
	for back := time.Minute; back < 3*time.Hour; back += time.Minute {
		if wallOf(t.Add(-back)).Equal(shown) {
			return false
		}
	}
	return true
}

// wallOf returns the wall time as if it were UTC.
func wallOf(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

func slowMatch(s *Schedule, w time.Time) bool {
	dom := s.dom>>w.Day()&1 != 0 || slowRelative(s, dayOfMonth, w)
	dow := s.dow>>int(w.Weekday())&1 != 0 || slowRelative(s, dayOfWeek, w)
	day := dom && dow
	if s.eitherOf {
		day = dom || dow
	}
	return day && s.month>>int(w.Month())&1 != 0 && s.hour>>w.Hour()&1 != 0 && s.minute>>w.Minute()&1 != 0 && s.second>>w.Second()&1 != 0
}

func slowExcluded(o Options, t time.Time) bool {
	if !o.NotBefore.IsZero() && t.Before(o.NotBefore) || !o.NotAfter.IsZero() && t.After(o.NotAfter) {
		return true
	}
	date := wallOf(t).Format(time.DateOnly)
	return slices.ContainsFunc(o.ExcludeDates, func(r DateRange) bool {
		first, last, _ := strings.Cut(r.String(), "/")
		return date >= first && date <= max(first, last)
	})
}

// randomField returns a field, usually a restricted one.
func randomField(r *rand.Rand, f int) string {
	rule := &fieldRules[f]
	value := func() int { return rule.min + r.IntN(rule.last-rule.min+1) }
	if (f == dayOfMonth || f == dayOfWeek) && r.IntN(4) == 0 {
		return randomRelative(r, f)
	}
	switch r.IntN(8) {
	case 0, 1:
		return "*"
	case 2:
		return fmt.Sprintf("*/%d", 1+r.IntN(rule.last))
	case 3:
		a, b := value(), value()
		return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
	case 4:
		a, b := value(), value()
		return fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+r.IntN(5))
	case 5:
		return fmt.Sprintf("%d,%d,%d", value(), value(), value())
	}
	return fmt.Sprint(value())
}

func randomSchedule(r *rand.Rand, withSeconds bool) string {
	var fields []string
	for f := range fieldCount {
		switch {
		case f == second && !withSeconds:
			continue
		case f == hour && r.IntN(3) > 0:
			fields = append(fields, []string{"0", "1", "2", "3", "23", "0-3", "1,2", "2-3", "22-23"}[r.IntN(9)]) // where clocks change
			continue
		case f > hour && r.IntN(3) > 0:
			fields = append(fields, "*")
			continue
		}
		fields = append(fields, randomField(r, f))
	}
	return strings.Join(fields, " ")
}

// randomCase returns options and a range that contains an offset change if the zone has any.
func randomCase(t *testing.T, r *rand.Rand) (o Options, from, to time.Time, step int64) {
	o.Location = mustLoad(t, awkwardZones[r.IntN(len(awkwardZones))])
	o.DaylightSaving = []DaylightSaving{Once, Once, Literal}[r.IntN(3)]
	middle := time.Unix(r.Int64N(64*365*secondsPerDay)+94694400, 0).Truncate(time.Minute).In(o.Location) // 1973 to 2036
	if _, end := middle.ZoneBounds(); !end.IsZero() {
		middle = end.Truncate(time.Minute) // some databases end in the middle of one
	}
	reach := 30 * time.Hour
	step = 60
	if r.IntN(4) == 0 {
		step, reach = 1, 150*time.Minute
	}
	o.Anchor = time.Unix(r.Int64N(1<<31)/60*60, 0)
	for range 1 + r.IntN(3) {
		text := randomSchedule(r, step == 1)
		if r.IntN(6) == 0 {
			text = fmt.Sprintf("@every %ds", step*(1+r.Int64N(100)))
		}
		o.Schedules = append(o.Schedules, mustParse(t, text, ""))
	}
	if r.IntN(3) == 0 {
		day, _ := floorDiv(wallOf(middle).Unix(), secondsPerDay)
		day += r.Int64N(3) - 1
		o.ExcludeDates = []DateRange{{day, day + r.Int64N(2)}, {day + 1, day + 1}}
	}
	if r.IntN(5) == 0 {
		o.NotBefore, o.NotAfter = middle.Add(-reach/2-time.Nanosecond), middle.Add(reach/2)
	}
	return o, middle.Add(-reach), middle.Add(reach), step
}

func TestPlanAgreesWithSlowRuns(t *testing.T)     { comparePlans(t, 100) }
func TestLongPlanAgreesWithSlowRuns(t *testing.T) { comparePlans(t, 1000) }

// comparePlans compares plans with slowRuns, as many as there are seeds.
func comparePlans(t *testing.T, seeds uint64) {
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			o, from, to, step := randomCase(t, r)
			compareWithSlowRuns(t, r, o, from, to, step)
		})
	}
}

// compareWithSlowRuns compares all methods of a plan with slowRuns in an interval.
func compareWithSlowRuns(t *testing.T, r *rand.Rand, o Options, from, to time.Time, step int64) {
	t.Helper()
	p := mustNew(t, o)
	want := slowRuns(o, from, to, step)
	describe := func() string {
		return fmt.Sprintf("%v in %s (%s), anchor %s, from %s to %s, excluded %v", o.Schedules, o.Location, o.DaylightSaving,
			o.Anchor, from.Format(time.RFC3339), to.Format(time.RFC3339), o.ExcludeDates)
	}
	if diff := cmp.Diff(want, slices.Collect(p.Between(from.Add(-time.Second), to))); diff != "" {
		t.Fatalf("%s: Between (-want +got):\n%s", describe(), diff)
	}
	var back []time.Time
	for run, ok := p.Prev(to.Add(1)); ok && !run.Before(from); run, ok = p.Prev(run) {
		back = append(back, run)
	}
	slices.Reverse(back)
	if diff := cmp.Diff(want, back); diff != "" {
		t.Fatalf("%s: Prev (-want +got):\n%s", describe(), diff)
	}
	span := int64(to.Sub(from) / time.Second)
	for i := range 10 {
		a, b := from.Add(time.Duration(r.Int64N(span))*time.Second), from.Add(time.Duration(r.Int64N(span))*time.Second)
		n := 0
		for _, run := range want {
			if run.After(a) && !run.After(b) {
				n++
			}
		}
		if got := p.Count(a, b); got != n {
			t.Fatalf("%s: Count(%s, %s) = %d, want %d", describe(), a, b, got, n)
		}
		if i > 1 { // two times of ten, as maps are slow
			continue
		}
		if diff := cmp.Diff(minutesOf(want, a, b), visited(p, a, b)); diff != "" {
			t.Fatalf("%s: Minutes(%s, %s) (-want +got):\n%s", describe(), a, b, diff)
		}
	}
}

// minutesOf returns the number of runs in (a, b] by minute.
func minutesOf(runs []time.Time, a, b time.Time) map[int64]int {
	found := map[int64]int{}
	for _, run := range runs {
		if run.After(a) && !run.After(b) {
			minute, _ := floorDiv(run.Unix(), secondsPerMinute)
			found[minute]++
		}
	}
	return found
}

// visited returns what Minutes tells.
func visited(p *Plan, a, b time.Time) map[int64]int {
	found := map[int64]int{}
	p.Minutes(a, b, func(minute int64, runs int) { found[minute] += runs })
	return found
}

// TestCountOverYears covers the counting of whole days and years.
func TestCountOverYears(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		o, from, _, _ := randomCase(t, r)
		o.Schedules = append(o.Schedules[:0], mustParse(t, randomSchedule(r, false), ""))
		if seed%3 == 0 {
			o.Schedules = append(o.Schedules, mustParse(t, fmt.Sprintf("@every %dm", 7*(1+r.IntN(400))), ""),
				mustParse(t, randomSchedule(r, false), ""))
		}
		p := mustNew(t, o)
		to := from.Add(time.Duration(r.Int64N(3 * 365 * 24 * int64(time.Hour))))
		want, inMinutes := 0, 0
		for range p.Between(from, to) {
			want++
		}
		if got := p.Count(from, to); got != want {
			t.Errorf("seed %d: Count of %v in %s = %d, want %d", seed, o.Schedules, o.Location, got, want)
		}
		if p.Minutes(from, to, func(_ int64, runs int) { inMinutes += runs }); inMinutes != want {
			t.Errorf("seed %d: Minutes of %v in %s has %d runs, want %d", seed, o.Schedules, o.Location, inMinutes, want)
		}
	}
}

// TestRareRunsAreFound compares with an enumeration of the days of 800 years.
func TestRareRunsAreFound(t *testing.T) {
	for _, text := range []string{"0 0 29 2 */7", "0 0 29 */2 */6", "0 0 31 2,4,6,9,11 *", "0 0 30,31 2 *", "0 0 */31 2 6", "0 0 */29 2 */5", "0 0 29 2 *", "0 0 */30 4 */7"} {
		s := mustParse(t, text, "")
		p := mustNew(t, Options{Schedules: []*Schedule{s}})
		from, to := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2700, 1, 1, 0, 0, 0, 0, time.UTC)
		var want []time.Time
		for day := from; day.Before(to); day = day.AddDate(0, 0, 1) {
			if slowMatch(s, day) {
				want = append(want, day)
			}
		}
		if diff := cmp.Diff(want, slices.Collect(p.Between(from.Add(-1), to))); diff != "" {
			t.Errorf("runs of %q (-want +got):\n%s", text, diff)
		}
		if s.never != (want == nil) {
			t.Errorf("never of %q = %t, but it has %d runs", text, s.never, len(want))
		}
		if got := p.Count(from.Add(-1), to); got != len(want) {
			t.Errorf("Count of %q = %d, want %d", text, got, len(want))
		}
	}
}

func TestCalendar(t *testing.T) {
	day := time.Date(-800, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range int64(1200 * 366) {
		d := day.AddDate(0, 0, int(n))
		number, _ := floorDiv(d.Unix(), secondsPerDay)
		want := calendarMonth{int64(d.Year()), int(d.Month()), number - int64(d.Day()) + 1}
		if got := monthOf(number); got != want {
			t.Fatalf("monthOf(%s) = %+v, want %+v", d.Format(time.DateOnly), got, want)
		}
	}
}

// TestLeapYearsOfTheFuture covers the last day of leap years, where package time loses a day.
func TestLeapYearsOfTheFuture(t *testing.T) {
	for _, zone := range []string{"America/New_York", "Australia/Lord_Howe", "Europe/Dublin"} {
		p := mustNew(t, Options{Schedules: []*Schedule{mustParse(t, "0 12 * * *", "")}, Location: mustLoad(t, zone)})
		from := time.Date(2039, 1, 1, 0, 0, 0, 0, p.location)
		n := 0
		for run := range p.Between(from, from.AddDate(100, 0, 0)) {
			if want := from.AddDate(0, 0, n); run.Format(time.DateOnly) != want.Format(time.DateOnly) {
				t.Fatalf("Run %d in %s is at %s, want it on %s", n, zone, run, want.Format(time.DateOnly))
			}
			n++
		}
		if got := p.Count(from, from.AddDate(100, 0, 0)); got != n || n != 36524 {
			t.Errorf("Count of 100 years in %s = %d, and Between has %d, want 36524", zone, got, n)
		}
	}
}
