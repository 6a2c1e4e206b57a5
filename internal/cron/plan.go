package cron

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// DaylightSaving is the rule for runs in an hour that is skipped or repeated.
type DaylightSaving string

const (
	// Once is the rule of cronie: fixed times run once, wildcards follow real time. See the package
	// documentation.
	Once DaylightSaving = "Once"
	// Literal skips times that do not exist, and runs twice at times that occur twice.
	Literal DaylightSaving = "Literal"
)

// Options configure a Plan.
type Options struct {
	// Schedules may coincide; that gives one run. Without schedules, the plan has no runs.
	Schedules []*Schedule
	// Location is the time zone of schedules and dates, UTC if nil.
	Location *time.Location
	// DaylightSaving defaults to Once.
	DaylightSaving DaylightSaving
	// Anchor is the start of @every, the Unix epoch if zero. Fractions of a second are truncated.
	Anchor time.Time
	// NotBefore and NotAfter are the first and the last instant that may have runs; zero means no
	// limit.
	NotBefore, NotAfter time.Time
	// ExcludeDates are dates without runs.
	ExcludeDates []DateRange
}

// Plan computes the runs of its schedules, in the years 1 to 9999. It is immutable and safe for
// concurrent use.
type Plan struct {
	schedules   []*Schedule
	location    *time.Location
	once        bool
	anchor      int64
	first, last int64 // the instants that may have runs, both included
	excluded    []interval
}

// New returns a Plan. It fails if the daylight saving rule is unknown.
func New(o Options) (*Plan, error) {
	p := &Plan{
		schedules: slices.Clone(o.Schedules),
		location:  o.Location,
		once:      o.DaylightSaving != Literal,
		first:     firstInstant,
		last:      lastInstant,
	}
	if p.location == nil {
		p.location = time.UTC
	}
	switch o.DaylightSaving {
	case "", Once, Literal:
	default:
		return nil, fmt.Errorf("unknown daylight saving rule %q; must be %s or %s", o.DaylightSaving, Once, Literal)
	}
	if !o.Anchor.IsZero() {
		p.anchor = o.Anchor.Unix()
	}
	if !o.NotBefore.IsZero() {
		p.first = max(p.first, ceil(o.NotBefore))
	}
	if !o.NotAfter.IsZero() {
		p.last = min(p.last, o.NotAfter.Unix())
	}
	p.excluded = excludedIntervals(o.ExcludeDates, p.location)
	return p, nil
}

// ceil returns the first whole second that is not before t.
func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// Next returns the first run after a time, in the zone of the plan; false if there is none.
func (p *Plan) Next(after time.Time) (time.Time, bool) {
	instant, ok := p.from(max(p.first, min(after.Unix(), lastInstant)+1))
	return p.time(instant, ok)
}

// Prev returns the last run before a time, in the zone of the plan; false if there is none. It
// excludes a run at exactly that time: to include runs due now, pass now plus a nanosecond.
func (p *Plan) Prev(before time.Time) (time.Time, bool) {
	instant, ok := p.upTo(min(p.last, max(ceil(before), firstInstant)-1))
	return p.time(instant, ok)
}

// Between returns the runs in (after, upTo], in order.
func (p *Plan) Between(after, upTo time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for t, ok := p.Next(after); ok && !t.After(upTo); t, ok = p.Next(t) {
			if !yield(t) {
				return
			}
		}
	}
}

func (p *Plan) time(instant int64, ok bool) (time.Time, bool) {
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(instant, 0).In(p.location), true
}

// from returns the first run at or after an instant.
func (p *Plan) from(instant int64) (int64, bool) {
	for instant <= p.last {
		instant = p.skipExcluded(instant)
		best := int64(math.MaxInt64)
		for _, s := range p.schedules {
			if next, ok := p.nextOf(s, instant); ok {
				best = min(best, next)
			}
		}
		switch {
		case best > p.last:
			return 0, false
		case p.skipExcluded(best) == best:
			return best, true
		}
		instant = best
	}
	return 0, false
}

// upTo returns the last run at or before an instant.
func (p *Plan) upTo(instant int64) (int64, bool) {
	for instant >= p.first {
		instant = p.skipExcludedBack(instant)
		best := int64(math.MinInt64)
		for _, s := range p.schedules {
			if prev, ok := p.prevOf(s, instant); ok {
				best = max(best, prev)
			}
		}
		switch {
		case best < p.first:
			return 0, false
		case p.skipExcludedBack(best) == best:
			return best, true
		}
		instant = best
	}
	return 0, false
}

// isFixed reports whether the schedule has fixed times, which are caught up and held back when the
// clocks change.
func (p *Plan) isFixed(s *Schedule) bool { return p.once && !s.wildcard && s.every == 0 }

// nextOf returns the first run of a schedule at or after an instant, ignoring exclusions.
func (p *Plan) nextOf(s *Schedule, instant int64) (int64, bool) {
	if s.every > 0 {
		_, past := floorDiv(instant-p.anchor-1, s.every)
		return instant - 1 - past + s.every, true
	}
	// A schedule may always fall into a gap: "*/30 2 25-31 3 */7" in Berlin. There are 14 kinds of
	// years, by length and first weekday, and each occurs within 40 years. A schedule without a run
	// in that time, under the final rules of the zone, never runs.
	last := min(p.last, max(instant, lastZoneChange)+41*366*secondsPerDay)
	for instant <= last {
		here := stretchAt(p.location, instant)
		from := instant
		if p.isFixed(s) {
			if instant == here.from && s.caughtUp(here) {
				return instant, true
			}
			from = max(from, here.from+here.repeated)
		}
		wall, ok := s.next(from + here.offset)
		if !ok {
			return 0, false
		}
		if next := wall - here.offset; next < here.to {
			return next, true
		}
		// No instant at or after here.to has a wall time before soonest, so stretches without runs,
		// possibly decades, are skipped in one step.
		soonest, _ := s.next(here.to - maxOffset)
		instant = max(here.to, soonest-maxOffset)
	}
	return 0, false
}

// prevOf returns the last run of a schedule at or before an instant, ignoring exclusions.
func (p *Plan) prevOf(s *Schedule, instant int64) (int64, bool) {
	if s.every > 0 {
		_, past := floorDiv(instant-p.anchor, s.every)
		return instant - past, true
	}
	for instant >= p.first {
		here := stretchAt(p.location, instant)
		from, fixed := here.from, p.isFixed(s)
		if fixed {
			from += here.repeated
		}
		wall, ok := s.prev(instant + here.offset)
		if !ok {
			return 0, false
		}
		if prev := wall - here.offset; prev >= from {
			return prev, true
		}
		if fixed && s.caughtUp(here) {
			return here.from, true
		}
		latest, _ := s.prev(here.from - 1 + maxOffset)
		instant = min(here.from-1, latest+maxOffset)
	}
	return 0, false
}

// caughtUp reports whether the schedule has a run in the gap before a stretch, or right after it.
func (s *Schedule) caughtUp(here stretch) bool {
	if here.gap == 0 {
		return false
	}
	wall, ok := s.next(here.from + here.offset - here.gap)
	return ok && wall <= here.from+here.offset
}
