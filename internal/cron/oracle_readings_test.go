package cron

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"testing"
)

// gapRule is the treatment of times that do not exist.
type gapRule int

const (
	leftOut  gapRule = iota
	caughtUp         // all of them at once, at the first instant after the gap
	shifted          // each as much later as the gap is long
)

// reading is one interpretation of schedules. The differences between libraries are data here, so
// that a difference counts as explained only if the reading reproduces their answer to the second.
type reading struct {
	// loneStar means that only "*" alone leaves a field of days unrestricted, not "*/2" or "*,13".
	loneStar bool
	gap      gapRule
	// once means that only the first pass of a repeated hour runs.
	once bool
	// forgets means that in the hour after a gap, or in a repeated hour, the change is ignored.
	forgets bool
	// overruns means that a nonexistent day such as 30 February is taken for 1 or 2 March, and the
	// days before that are skipped.
	overruns bool
}

// ourReading is the reading of the package documentation.
func ourReading(s *Schedule, rule DaylightSaving) reading {
	if rule == Literal || s.wildcard {
		return reading{}
	}
	return reading{gap: caughtUp, once: true}
}

// cronerReading: times with one second, one minute and one hour are fixed, as in this package;
// those with lists or ranges are not.
func cronerReading(s *Schedule) reading {
	r := reading{loneStar: true, overruns: true}
	fields := strings.Fields(s.text)
	clock := strings.Join(fields[:max(0, len(fields)-3)], "")
	if !strings.ContainsAny(clock, "*/?") && bits.OnesCount64(s.second) == 1 && bits.OnesCount64(s.minute) == 1 && bits.OnesCount32(s.hour) == 1 {
		r.gap, r.once = caughtUp, true
	}
	return r
}

// cronParserReading: all times are fixed except those that match all 24 hours. A change is only
// noticed if the search stops at it.
func cronParserReading(s *Schedule) reading {
	if bits.OnesCount32(s.hour) == 24 {
		return reading{loneStar: true}
	}
	return reading{loneStar: true, gap: shifted, once: true, forgets: true}
}

// class explains a difference between a library and this package: the aspects of its reading that
// turn our answer into its own, or one of those below.
//
// This package follows cronie in all of them. With "gap" and "repeated", it agrees with neither of
// the two libraries if they disagree with each other, or with one of them.
type class string

const (
	agree   class = "agrees"
	refuses class = "refuses" // TestOraclesRefuse has the schedules
	// uneven: cron-parser searches hour by hour and finds nothing, or something else, on days on
	// which the clocks change by half an hour or within an hour.
	uneven class = "uneven"
)

// verdict holds the classes of the answers of the two libraries for one start.
type verdict struct{ croner, cronParser class }

// aspects are the parts of a reading, with the names of their classes.
var aspects = []struct {
	name class
	take func(to *reading, from reading)
}{
	{"star", func(to *reading, from reading) { to.loneStar = from.loneStar }},
	{"overrun", func(to *reading, from reading) { to.overruns = from.overruns }},
	{"gap", func(to *reading, from reading) { to.gap = from.gap }},
	{"repeated", func(to *reading, from reading) { to.once = from.once }},
	{"forgets", func(to *reading, from reading) { to.forgets = from.forgets }},
}

// reader explains the answers of one library for one schedule in one zone.
type reader struct {
	schedule, loneStar *Schedule // loneStar is the schedule as those read it who know only "*" alone
	stretches          []plainStretch
	theirs             reading
	steps              []step
}

// plainStretch is a stretch with the change at its beginning, whatever its size.
type plainStretch struct{ from, to, offset, change int64 }

func newReader(s *Schedule, zone oracleZone, ours, theirs reading) *reader {
	r := &reader{schedule: s, loneStar: &Schedule{}, theirs: theirs, steps: stepsBetween(ours, theirs)}
	*r.loneStar = *s
	if fields := strings.Fields(s.text); len(fields) >= 5 {
		isLone := func(field string) bool { return field == "*" || field == "?" }
		r.loneStar.eitherOf = !isLone(fields[len(fields)-3]) && !isLone(fields[len(fields)-1])
		r.loneStar.never = !r.loneStar.hasDays()
	}
	here := plainStretch{from: math.MinInt64 / 4, offset: zone.Offset}
	for _, c := range zone.Changes {
		here.to = c[0]
		r.stretches = append(r.stretches, here)
		here = plainStretch{from: c[0], offset: c[1], change: c[1] - here.offset}
	}
	here.to = math.MaxInt64 / 4
	r.stretches = append(r.stretches, here)
	return r
}

// explain returns the class of an answer that differs from ours: the smallest set of aspects that
// turns our answer into theirs. It fails the test if there is none.
func (r *reader) explain(t *testing.T, o *oracles, start int64, ours []int64, answer string) class {
	if answer == "!" {
		return refuses
	}
	for _, step := range r.steps {
		if o.encode(start, r.runs(step.reading, start, o.Runs)) == answer {
			return step.class
		}
	}
	theirs := decode(t, start, answer)
	if r.isUneven(start, r.runs(r.theirs, start, o.Runs), theirs) {
		return uneven
	}
	t.Errorf("%q after %d: %v is not our answer, %v, and no reading explains it", r.schedule, start, theirs, ours)
	return ""
}

// step is a reading between ours and theirs.
type step struct {
	class   class
	reading reading
}

// stepsBetween returns all readings between two, ordered by the number of aspects of the second.
func stepsBetween(ours, theirs reading) []step {
	steps := []step{{"", ours}}
	for _, a := range aspects {
		for _, before := range steps {
			after := before.reading
			a.take(&after, theirs)
			if after != before.reading {
				steps = append(steps, step{class(strings.TrimPrefix(string(before.class+"+"+a.name), "+")), after})
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		return cmp.Compare(strings.Count(string(a.class), "+"), strings.Count(string(b.class), "+"))
	})
	return slices.DeleteFunc(steps, func(s step) bool { return s.class == "" })
}

// runs returns up to n runs after start according to a reading.
func (r *reader) runs(way reading, start int64, n int) []int64 {
	s := r.schedule
	if way.loneStar {
		s = r.loneStar
	}
	var runs []int64
	if s.never {
		return runs
	}
	first := sort.Search(len(r.stretches), func(i int) bool { return r.stretches[i].to > start })
	for _, here := range r.stretches[first:] {
		changes := here.change > -correction && here.change < correction
		if way.forgets && start >= here.from {
			changes = false
		}
		var skipped []int64
		if changes && way.gap != leftOut {
			skipped = skippedRuns(s, here, way.gap, start, n)
		}
		from := max(here.from, start+1)
		if changes && way.once && here.change < 0 {
			from = max(from, here.from-here.change)
		}
		for len(runs) < n {
			wall, _ := s.next(from + here.offset)
			run := wall - here.offset
			if len(skipped) > 0 && skipped[0] <= run {
				run, skipped = skipped[0], skipped[1:]
			} else {
				from = run + 1
			}
			if run >= here.to {
				break
			}
			before := start
			if len(runs) > 0 {
				before = runs[len(runs)-1]
			}
			if run <= before || way.overruns && s.passesOver(before+here.offset, run+here.offset) {
				continue
			}
			runs = append(runs, run)
		}
	}
	return runs
}

// skippedRuns returns the first n instants after start at which times in the gap before a stretch
// run.
func skippedRuns(s *Schedule, here plainStretch, rule gapRule, start int64, n int) []int64 {
	var skipped []int64
	end := here.from + here.offset
	for wall, _ := s.next(end - here.change); wall < end && len(skipped) < n; wall, _ = s.next(wall + 1) {
		if rule == caughtUp {
			return []int64{here.from}
		}
		if run := wall - here.offset + here.change; run > start {
			skipped = append(skipped, run)
		}
	}
	return skipped
}

// passesOver reports whether a time is missed by taking 30 February for 1 or 2 March.
func (s *Schedule) passesOver(before, wall int64) bool {
	dayBefore, _ := floorDiv(before, secondsPerDay)
	day, _ := floorDiv(wall, secondsPerDay)
	short := monthOf(day).prev()
	end := short.first + int64(short.days())
	if dayBefore >= end || s.month>>short.month&1 == 0 || dayBefore == end-1 && s.matchesDay(dayBefore) {
		return false
	}
	for imagined := end; imagined < short.first+31; imagined++ {
		_, weekday := floorDiv(imagined+4, 7)
		dom, dow := s.dom>>(imagined-short.first+1)&1 != 0, s.dow>>weekday&1 != 0
		if s.eitherOf && (dom || dow) || dom && dow {
			return day < imagined
		}
	}
	return false
}

// isUneven reports whether two lists of runs diverge in a search that begins or ends on a day with
// an uneven change.
func (r *reader) isUneven(start int64, expected, theirs []int64) bool {
	from, to := start, int64(math.MaxInt64/2)
	for i := range max(len(expected), len(theirs)) {
		if i < len(expected) && i < len(theirs) && expected[i] == theirs[i] {
			from = expected[i]
			continue
		}
		for _, runs := range [][]int64{expected, theirs} {
			if i < len(runs) {
				to = min(to, runs[i])
			}
		}
		break
	}
	dayOf := func(wall int64) int64 {
		day, _ := floorDiv(wall, secondsPerDay)
		return day
	}
	for _, here := range r.stretches[1:] {
		after := here.from + here.offset
		before := after - here.change
		if here.change%secondsPerHour == 0 && before%secondsPerHour == 0 {
			continue
		}
		for _, end := range []int64{from, to} {
			if day := dayOf(end + here.offset); day == dayOf(before) || day == dayOf(after) {
				return true
			}
		}
	}
	return false
}
