package cron

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// slowField is a parsed field.
type slowField struct {
	star   bool
	values []int
}

// slowFields parses the fields of a schedule value by value, as the package documentation
// describes.
func slowFields(text, key string) (fields []slowField, ok bool) {
	words := strings.FieldsFunc(text, isSpace)
	if len(words) == 5 {
		words = slices.Insert(words, 0, "0")
	}
	if len(words) != fieldCount || len(text) > 1024 {
		return nil, false
	}
	for f, word := range words {
		field := slowField{}
		in := map[int]bool{}
		items := strings.Split(word, ",")
		for i, item := range items {
			if len(items) <= MaxEntries && relativePatterns[f] != nil && relativePatterns[f].MatchString(item) {
				continue
			}
			first, last, step, star, ok := slowItem(f, item, key)
			if !ok || len(items) > 60 {
				return nil, false
			}
			field.star = field.star || star && i == 0
			for v := first; v <= last; v += step {
				if f == dayOfWeek && v == 7 {
					in[0] = true
				} else {
					in[v] = true
				}
			}
		}
		for v := range 60 {
			if in[v] {
				field.values = append(field.values, v)
			}
		}
		fields = append(fields, field)
	}
	return fields, true
}

var itemPattern = regexp.MustCompile(`^(?:([*?])|(H)(?:\((\w+)-(\w+)\))?|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?$`)

// slowItem parses one item of a list: every step-th value from first to last.
func slowItem(f int, item, key string) (first, last, step int, star, ok bool) {
	m := itemPattern.FindStringSubmatch(item)
	if m == nil {
		return 0, 0, 0, false, false
	}
	isStar, isH, hasStep, bounded := m[1] != "", m[2] != "", m[7] != "", m[3]+m[5] != ""
	lowest := []int{0, 0, 0, 1, 1, 0}[f]
	highest := []int{59, 59, 23, 31, 12, 6}[f]
	first, last, step = lowest, highest, 1
	if isH && f == dayOfMonth {
		last = 28
	}
	ok = true
	if bounded {
		first, ok = slowValue(f, m[3]+m[5])
		switch end := m[4] + m[6]; {
		case end != "":
			var endOK bool
			last, endOK = slowValue(f, end)
			if f == dayOfWeek && last == 0 && first > 0 {
				last = 7
			}
			ok = ok && endOK && first <= last
		case !hasStep || first > highest:
			last = first
		}
	}
	if hasStep {
		step, _ = strconv.Atoi(m[7])
		ok = ok && step > 0
	}
	if ok && isH {
		size := last - first + 1
		name := []string{"second", "minute", "hour", "day of month", "month", "day of week"}[f]
		if hasStep {
			ok = step <= size
			size = step
		}
		first += int(hash(key, name, 0) % uint64(size))
		if !hasStep {
			last = first
		}
	}
	return first, last, step, isStar || isH && hasStep && !bounded, ok
}

func slowValue(f int, text string) (int, bool) {
	if v, err := strconv.Atoi(text); err == nil {
		return v, len(text) <= 4 && v >= []int{0, 0, 0, 1, 1, 0}[f] && v <= []int{59, 59, 23, 31, 12, 7}[f]
	}
	names := map[int]string{month: "   janfebmaraprmayjunjulaugsepoctnovdec", dayOfWeek: "sunmontuewedthufrisat"}[f]
	at := strings.Index(names, strings.ToLower(text))
	return at / 3, len(text) == 3 && at >= 0 && at%3 == 0
}

// elements returns the values in a set.
func elements(set uint64) []int {
	var values []int
	for ; set != 0; set &= set - 1 {
		values = append(values, bits.TrailingZeros64(set))
	}
	return values
}

// compareWithSlowFields compares Parse with slowFields.
func compareWithSlowFields(t *testing.T, text, key string, s *Schedule, err error) {
	t.Helper()
	want, ok := slowFields(text, key)
	if ok != (err == nil) {
		t.Fatalf("Parse(%q) = %v, want valid: %t", text, err, ok)
	}
	if err != nil {
		return
	}
	for f, set := range []uint64{s.second, s.minute, uint64(s.hour), uint64(s.dom), uint64(s.month), uint64(s.dow)} {
		if diff := cmp.Diff(want[f].values, elements(set)); diff != "" {
			t.Fatalf("The %s of %q (-want +got):\n%s", fieldRules[f].name, text, diff)
		}
	}
	if s.wildcard != (want[minute].star || want[hour].star) || s.eitherOf != (!want[dayOfMonth].star && !want[dayOfWeek].star) {
		t.Fatalf("%q: wildcard %t, either of the days %t; stars are %+v", text, s.wildcard, s.eitherOf, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"* * * * *", "*/5 * * * *", "0 0 29 2 */7", "0 0 31 2 *", "@every 90s", "@daily", "TZ=UTC 0 0 * * *", "61 * * * *",
		"H H(0-7) H/3 * *", "H(1-5)/2,9 * * * *", "0 0 * * FRI-SUN", "10,20-30/5 */2 ? JAN,mar-dec 0-7", "1/0 , - / ()", "@every 2562047h47m16s",
		"0 0 L,L-3,LW,l-2w,15W * *", "0 0 L * 5L,fril,2#1,MON#5", "0 0 L-31,31W 1L 1#0", "0 0 1 1 ?", "5/15 1-2/3 * * MON#2", "0 0 L * *", "\xff\x00 * * * *", "* * * * * *", "0-0 0-0 1-1 1-1 7-7", "7/2 7/1 7/9 7/2 7/2",
		"H(MON-FRI) H H(28-31) H(nov-dec) H(SAT-SUN)", "0 0 * * 5-0/2", "0 0 * * 0-0,7-7,SUN-7", "\u00a00 0 * * *", "* *\v* * *", "0 0 * K\u0131N *",
	} {
		f.Add(text, "default/backup")
	}
	f.Fuzz(func(t *testing.T, text, key string) {
		s, err := Parse(text, key)
		if !strings.HasPrefix(strings.TrimLeftFunc(text, isSpace), "@") {
			compareWithSlowFields(t, text, key, s, err)
		}
		if err != nil {
			var e *ParseError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(text) || len(e.Text) > 110 || len(e.Part) > 110 || len(err.Error()) > 1000 {
				t.Fatalf("Parse(%q) = %#v", text, err)
			}
			if !strings.HasPrefix(text[e.Offset:], strings.TrimSuffix(e.Part, "...")) {
				t.Fatalf("Parse(%q) names %q, which is not at %d", text, e.Part, e.Offset)
			}
			return
		}
		again, err := Parse(s.String(), key)
		if err != nil || *again != *s {
			t.Fatalf("Parse(%q) = %+v, want %+v as for %q: %v", s.String(), again, s, text, err)
		}
	})
}

// FuzzPlan makes the comparison of TestPlanAgreesWithSlowRuns with schedules, zones and times found
// by coverage.
func FuzzPlan(f *testing.F) {
	for _, seed := range []struct {
		first, second string
		zone          uint8
		literal       bool
		at            int64
		exclude       int8
	}{
		{"30 2 * * *", "", 3, false, 1774746000, -1},             // Berlin, the gap of 2026
		{"30 2 * * *", "*/20 2-3 * * *", 3, true, 1792890000, 0}, // and the repeated hour
		{"45 1 * * *", "@every 7m", 5, false, 1775314800, 1},     // Lord Howe
		{"0 0 * * *", "59 23 31 12 *", 6, false, 1541300400, 0},
		{"@daily", "0 0 * * SUN", 7, false, 1289104200, 0},    // St John's, over midnight
		{"30 2 * * *", "H H * * *", 14, false, 1325239200, 2}, // Apia
		{"0-10 30 2 * * *", "@every 11s", 2, false, 1773558000, 0},
		{"0 0 29 2 *", "0 0 31 2 *", 0, false, 1835395200, 0},
	} {
		f.Add(seed.first, seed.second, seed.zone, seed.literal, seed.at, seed.exclude)
	}
	f.Fuzz(func(t *testing.T, first, second string, zone uint8, literal bool, at int64, exclude int8) {
		o := Options{Location: mustLoad(t, awkwardZones[int(zone)%len(awkwardZones)]), Anchor: time.Unix(at%1000*60, 0)}
		if literal {
			o.DaylightSaving = Literal
		}
		step := int64(secondsPerMinute)
		for _, text := range []string{first, second} {
			s, err := Parse(text, "default/backup")
			if err != nil {
				continue
			}
			o.Schedules = append(o.Schedules, s)
			if s.every%secondsPerMinute != 0 || s.every == 0 && s.second != 1 {
				step = 1
			}
		}
		if len(o.Schedules) == 0 {
			return
		}
		// 1973 to 2100; before that, some zones changed at odd seconds. Half of the times are around a change.
		const from, to = 94694400, 4102444800
		_, past := floorDiv(at, to-from)
		middle := time.Unix(from+past-past%secondsPerMinute, 0).In(o.Location)
		if _, end := middle.ZoneBounds(); at%2 == 0 && !end.IsZero() && end.Unix() < to {
			middle = end.Truncate(time.Minute)
		}
		if exclude != 0 {
			day, _ := floorDiv(wallOf(middle).Unix(), secondsPerDay)
			o.ExcludeDates = []DateRange{{day + int64(exclude%3), day + int64(exclude%3) + int64(exclude&1)}}
		}
		reach := 30 * time.Hour
		if step == 1 {
			reach = 100 * time.Minute
		}
		compareWithSlowRuns(t, rand.New(rand.NewPCG(uint64(at), 0)), o, middle.Add(-reach), middle.Add(reach), step)
	})
}
