package cron

import "time"

// Count returns how many runs there are after one time and up to another, the latter included: as
// many as Between yields, without going through them.
func (p *Plan) Count(after, upTo time.Time) int {
	from := max(p.first, min(after.Unix(), lastInstant)+1)
	to := min(p.last, max(upTo.Unix(), firstInstant-1)) + 1
	var n int64
	for _, gap := range p.excluded {
		if gap.to <= from {
			continue
		}
		if gap.from >= to {
			break
		}
		n += p.count(from, gap.from)
		from = gap.to
	}
	return int(n + p.count(from, to))
}

// count returns the number of runs at instants in [from, to), exclusions apart.
func (p *Plan) count(from, to int64) int64 {
	if from >= to || len(p.schedules) == 0 {
		return 0
	}
	if len(p.schedules) == 1 && p.schedules[0].every > 0 {
		before := func(instant int64) int64 {
			n, _ := floorDiv(instant-1-p.anchor, p.schedules[0].every)
			return n
		}
		return before(to) - before(from)
	}
	u := union{plan: p, known: map[string]int64{}}
	var n int64
	for instant := from; instant < to; {
		here := stretchAt(p.location, instant)
		end := min(here.to, to)
		if instant == here.from && u.onlyCaughtUp(here) {
			n++
		}
		if held := min(end, here.from+here.repeated); instant < held {
			n += u.count(here.offset, instant, held, true)
			instant = held
		}
		n += u.count(here.offset, instant, end, false)
		instant = end
	}
	return n
}

// onlyCaughtUp reports whether there is a run at the beginning of a stretch only because one of
// the gap before it is caught up there.
func (u *union) onlyCaughtUp(here stretch) bool {
	p, caughtUp := u.plan, false
	for _, s := range p.schedules {
		switch {
		case s.every > 0:
			if _, past := floorDiv(here.from-p.anchor, s.every); past == 0 {
				return false
			}
		case s.matches(here.from + here.offset):
			return false
		case p.isFixed(s):
			caughtUp = caughtUp || s.caughtUp(here)
		}
	}
	return caughtUp
}
