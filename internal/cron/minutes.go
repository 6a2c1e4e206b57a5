package cron

import (
	"math/bits"
	"time"
)

// Minutes calls visit with each minute that has runs in (after, upTo], as the number of minutes since 1970-01-01T00:00Z, and with
// their number. A minute in which the clocks change can come twice. It is for intervals of years and many plans: it does not
// compute each run.
func (p *Plan) Minutes(after, upTo time.Time, visit func(minute int64, runs int)) {
	for from, to := range p.included(after, upTo) {
		if len(p.schedules) == 1 && p.schedules[0].every > 0 {
			p.minutesOfEvery(from, to, visit)
			continue
		}
		p.minutes(from, to, visit)
	}
}

// minutesOfEvery visits the minutes of a single @every in [from, to).
func (p *Plan) minutesOfEvery(from, to int64, visit func(int64, int)) {
	for instant, ok := p.nextOf(p.schedules[0], from); ok && instant < to; {
		minute, second := floorDiv(instant, secondsPerMinute)
		end := min(to, instant-second+secondsPerMinute)
		n := (end-instant-1)/p.schedules[0].every + 1
		visit(minute, int(n))
		instant += n * p.schedules[0].every
	}
}

// minutes visits the minutes of [from, to), ignoring exclusions.
func (p *Plan) minutes(from, to int64, visit func(int64, int)) {
	if len(p.schedules) == 0 {
		return
	}
	u := union{plan: p}
	for instant := from; instant < to; {
		here := stretchAt(p.location, instant)
		end := min(here.to, to)
		if instant == here.from && u.onlyCaughtUp(here) {
			minute, _ := floorDiv(instant, secondsPerMinute)
			visit(minute, 1)
		}
		if held := min(end, here.from+here.repeated); instant < held {
			u.minutes(here.offset, instant, held, true, visit)
			instant = held
		}
		u.minutes(here.offset, instant, end, false, visit)
		instant = end
	}
}

// minutes visits the minutes of [from, to), which must lie in one stretch.
func (u *union) minutes(offset, from, to int64, held bool, visit func(int64, int)) {
	for instant := from; instant < to; {
		day, clock := floorDiv(instant+offset, secondsPerDay)
		midnight := day*secondsPerDay - offset
		end := min(to, midnight+secondsPerDay)
		_, odd := floorDiv(offset, secondsPerMinute) // as local mean time has it
		switch s := u.plan.schedules[0]; {
		case len(u.plan.schedules) > 1 || clock > 0 || end < midnight+secondsPerDay || odd != 0:
			var set daySet
			set.addDay(u.plan, day, offset, held)
			for instant < end {
				minute, second := floorDiv(instant, secondsPerMinute)
				next := min(end, instant-second+secondsPerMinute)
				if n := set.count(instant-midnight, next-midnight); n > 0 {
					visit(minute, int(n))
				}
				instant = next
			}
		case held && u.plan.isFixed(s):
		case s.matchesDay(day):
			first, runs := midnight/secondsPerMinute, bits.OnesCount64(s.second)
			for hours := s.hour; hours != 0; hours &= hours - 1 {
				hour := first + int64(bits.TrailingZeros32(hours))*60
				for minutes := s.minute; minutes != 0; minutes &= minutes - 1 {
					visit(hour+int64(bits.TrailingZeros64(minutes)), runs)
				}
			}
		}
		instant = end
	}
}
