package cron

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"time"
)

// Count returns the number of runs in (after, upTo]: as many as Between yields, without enumerating
// them.
func (p *Plan) Count(after, upTo time.Time) int {
	var n int64
	for from, to := range p.included(after, upTo) {
		n += p.count(from, to)
	}
	return int(n)
}

// included returns the intervals [from, to) of the instants in (after, upTo] that may have runs.
func (p *Plan) included(after, upTo time.Time) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		from := max(p.first, min(after.Unix(), lastInstant)+1)
		to := min(p.last, max(upTo.Unix(), firstInstant-1)) + 1
		for _, gap := range p.excluded {
			if gap.to <= from {
				continue
			}
			if gap.from >= to {
				break
			}
			if !yield(from, gap.from) {
				return
			}
			from = gap.to
		}
		yield(from, to)
	}
}

// count returns the number of runs at instants in [from, to), ignoring exclusions.
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

// onlyCaughtUp reports whether the only run at the beginning of a stretch is one caught up from the
// gap before it.
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

// union counts the runs of several schedules, simultaneous ones once. It iterates over days, but
// computes each kind of day only once.
type union struct {
	plan  *Plan
	known map[string]int64 // the number of runs on days of a kind
	kind  []byte
}

// count returns the number of runs at instants in [from, to), which must lie in one stretch. held
// means that the interval is in a repeated hour, where fixed schedules do not run.
func (u *union) count(offset, from, to int64, held bool) int64 {
	if from >= to {
		return 0
	}
	if len(u.plan.schedules) == 1 {
		s := u.plan.schedules[0]
		if held && u.plan.isFixed(s) {
			return 0
		}
		return s.count(from+offset, to+offset)
	}
	first, clockFrom := floorDiv(from+offset, secondsPerDay)
	last, clockTo := floorDiv(to+offset, secondsPerDay)
	if first == last {
		return u.countPart(first, offset, clockFrom, clockTo, held)
	}
	n := u.countPart(first, offset, clockFrom, secondsPerDay, held) + u.countPart(last, offset, 0, clockTo, held)
	for day := first + 1; day < last; day++ {
		n += u.countDay(day, offset, held)
	}
	return n
}

// countDay returns the number of runs on a day. Two days are of the same kind if the same schedules
// match them and every @every has its first run at the same second.
func (u *union) countDay(day, offset int64, held bool) int64 {
	u.kind = u.kind[:0]
	for _, s := range u.plan.schedules {
		begin := int64(0)
		switch {
		case s.every > 0:
			begin = min(s.firstOn(day, offset, u.plan.anchor), secondsPerDay)
		case !s.matchesDay(day) || held && u.plan.isFixed(s):
			begin = secondsPerDay
		}
		u.kind = binary.AppendUvarint(u.kind, uint64(begin))
	}
	n, ok := u.known[string(u.kind)]
	if !ok {
		n = u.countPart(day, offset, 0, secondsPerDay, held)
		u.known[string(u.kind)] = n
	}
	return n
}

// countPart returns the number of runs in the seconds [from, to) of a day.
func (u *union) countPart(day, offset, from, to int64, held bool) int64 {
	if from >= to {
		return 0
	}
	var set daySet
	set.addDay(u.plan, day, offset, held)
	return set.count(from, to)
}

// firstOn returns the second of a day of the first run of @every, which may be after the end of the
// day.
func (s *Schedule) firstOn(day, offset, anchor int64) int64 {
	_, past := floorDiv(day*secondsPerDay-offset-anchor-1, s.every)
	return s.every - 1 - past
}

// daySet is a set of seconds of a day.
type daySet [secondsPerDay / 64]uint64

// add adds clock+n for every bit n that is set, up to the 59th.
func (d *daySet) add(clock int64, set uint64) {
	word, bit := clock/64, clock%64
	d[word] |= set << bit
	if rest := set >> (64 - bit); rest != 0 {
		d[word+1] |= rest
	}
}

// addDay adds the runs of a plan on a day of a stretch with an offset.
func (d *daySet) addDay(p *Plan, day, offset int64, held bool) {
	for _, s := range p.schedules {
		switch {
		case held && p.isFixed(s):
		case s.every > 0:
			for clock := s.firstOn(day, offset, p.anchor); clock < secondsPerDay; clock += s.every {
				d.add(clock, 1)
			}
		case s.matchesDay(day):
			d.addFields(s)
		}
	}
}

// addFields adds the seconds of a day at which a schedule of fields runs.
func (d *daySet) addFields(s *Schedule) {
	for hours := s.hour; hours != 0; hours &= hours - 1 {
		for minutes := s.minute; minutes != 0; minutes &= minutes - 1 {
			clock := bits.TrailingZeros32(hours)*secondsPerHour + bits.TrailingZeros64(minutes)*secondsPerMinute
			d.add(int64(clock), s.second)
		}
	}
}

// count returns how many seconds in [from, to) are in the set.
func (d *daySet) count(from, to int64) int64 {
	n := 0
	for i := from / 64; i*64 < to; i++ {
		word := d[i]
		if before := from - i*64; before > 0 {
			word &^= upTo(int(before) - 1)
		}
		if rest := to - i*64; rest < 64 {
			word &= upTo(int(rest) - 1)
		}
		n += bits.OnesCount64(word)
	}
	return int64(n)
}
