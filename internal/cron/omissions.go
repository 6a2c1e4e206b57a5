package cron

import (
	"slices"
	"time"
)

// OmissionReason is why times of the schedules have no run.
type OmissionReason string

const (
	// Excluded times are on a date of ExcludeDates.
	Excluded OmissionReason = "Excluded"
	// TooEarly times are before NotBefore.
	TooEarly OmissionReason = "TooEarly"
	// TooLate times are after NotAfter.
	TooLate OmissionReason = "TooLate"
	// HourSkipped times do not exist, because the clocks go forward.
	HourSkipped OmissionReason = "HourSkipped"
	// HourRepeated times occur for the second time, and had their run at the first.
	HourRepeated OmissionReason = "HourRepeated"
)

// Omission is a group of times that have no run for one reason.
type Omission struct {
	Reason OmissionReason
	// First and Last are the first and the last of the times, in the zone of the plan. Those of HourSkipped have the offset
	// before the change of the clocks.
	First, Last time.Time
	// Count is the number of times.
	Count int
}

// Omissions returns the times in (after, upTo] that have no run, in order. A time in the skipped hour that runs right after it is
// none: see ClocksAt. The cost grows with the number of clock changes in the interval.
func (p *Plan) Omissions(after, upTo time.Time) []Omission {
	all := interval{max(firstInstant, after.Unix()+1), min(lastInstant, upTo.Unix()) + 1}
	window := interval{max(all.from, p.first), min(all.to, p.last+1)}
	omitted := p.outside(nil, TooEarly, interval{all.from, min(all.to, p.first)})
	for _, gap := range p.excluded {
		omitted = p.outside(omitted, Excluded, interval{max(gap.from, window.from), min(gap.to, window.to)})
	}
	omitted = p.outside(omitted, TooLate, interval{max(all.from, p.last+1), all.to})
	for instant := window.from; instant < window.to; {
		here := stretchAt(p.location, instant)
		if here.from >= window.from && p.skipExcluded(here.from) == here.from {
			omitted = p.skippedAt(omitted, here)
		}
		omitted = p.repeatedIn(omitted, interval{max(here.from, window.from), min(here.from+here.repeated, window.to)})
		instant = here.to
	}
	slices.SortStableFunc(omitted, func(a, b Omission) int { return a.First.Compare(b.First) })
	return omitted
}

// WithoutLimits returns the plan without NotBefore, NotAfter and ExcludeDates.
func (p *Plan) WithoutLimits() *Plan {
	open := *p
	open.first, open.last, open.excluded = firstInstant, lastInstant, nil
	return &open
}

// outside appends the times in an interval that would have a run without limits.
func (p *Plan) outside(omitted []Omission, reason OmissionReason, i interval) []Omission {
	open := p.WithoutLimits()
	n := open.count(i.from, i.to)
	if n == 0 {
		return omitted
	}
	first, _ := open.from(i.from)
	last, _ := open.upTo(i.to - 1)
	return append(omitted, Omission{reason, time.Unix(first, 0).In(p.location), time.Unix(last, 0).In(p.location), int(n)})
}

// skippedAt appends the times in the gap before a stretch that are not caught up.
func (p *Plan) skippedAt(omitted []Omission, here stretch) []Omission {
	_, before := time.Unix(here.from-1, 0).In(p.location).Zone()
	lost := func(s *Schedule) bool { return s.every == 0 && (here.gap == 0 || !p.isFixed(s)) }
	gap := interval{here.from, here.from + here.offset - int64(before)}
	return p.walk(omitted, HourSkipped, gap, time.FixedZone("", before), lost, func(int64) bool { return false })
}

// repeatedIn appends the times in a part of a repeated hour that had their run at the first occurrence.
func (p *Plan) repeatedIn(omitted []Omission, repeated interval) []Omission {
	// At the same second another schedule may have a run.
	return p.walk(omitted, HourRepeated, repeated, p.location, p.isFixed, func(instant int64) bool {
		next, ok := p.from(instant)
		return p.skipExcluded(instant) != instant || ok && next == instant
	})
}

// walk appends the times of some schedules in an interval, which a clock with one offset shows, except some of them.
func (p *Plan) walk(omitted []Omission, reason OmissionReason, i interval, clock *time.Location, of func(*Schedule) bool, except func(int64) bool) []Omission {
	_, offset := time.Unix(i.from, 0).In(clock).Zone()
	group := Omission{Reason: reason}
	for instant := i.from; instant < i.to; instant++ {
		next := i.to
		for _, s := range p.schedules {
			if of(s) {
				if wall, ok := s.next(instant + int64(offset)); ok {
					next = min(next, wall-int64(offset))
				}
			}
		}
		if instant = next; instant == i.to || except(instant) {
			continue
		}
		group.Last = time.Unix(instant, 0).In(clock)
		if group.Count++; group.Count == 1 {
			group.First = group.Last
		}
	}
	if group.Count == 0 {
		return omitted
	}
	return append(omitted, group)
}
