package cron

import (
	"math/bits"
)

const (
	secondsPerMinute = 60
	secondsPerHour   = 60 * secondsPerMinute
	secondsPerDay    = 24 * secondsPerHour
)

// Schedule is a parsed schedule. It is immutable and may be shared. The fields are bit sets: bit n
// is set if the value n matches.
type Schedule struct {
	text   string
	second uint64
	minute uint64
	hour   uint32
	dom    uint32
	month  uint16
	dow    uint8 // Sunday is bit 0 only
	// relative has the days of L, W and #, which match besides dom and dow.
	relative relativeDays
	// eitherOf means that a day matches if its day of month or its day of week matches.
	eitherOf bool
	// wildcard schedules follow real time when the clocks change.
	wildcard bool
	never    bool  // no date matches, such as 31 February
	perDay   int64 // number of runs on a day that matches
	every    int64 // seconds of @every, or zero
}

// String returns the parsed text without surrounding space.
func (s *Schedule) String() string { return s.text }

// The functions below use wall time: seconds since 1970-01-01 00:00:00 as shown by a local clock.
// Days are counted from that date.

// floorDiv returns the quotient rounded down and the remainder, which is never negative.
func floorDiv(a, b int64) (quotient, remainder int64) {
	quotient, remainder = a/b, a%b
	if remainder < 0 {
		quotient, remainder = quotient-1, remainder+b
	}
	return quotient, remainder
}

// next returns the first matching wall time at or after wall. The schedule must not be @every.
func (s *Schedule) next(wall int64) (int64, bool) {
	if s.never {
		return 0, false
	}
	day, clock := floorDiv(wall, secondsPerDay)
	if s.matchesDay(day) {
		if clock, ok := s.nextClock(int(clock)); ok {
			return day*secondsPerDay + int64(clock), true
		}
	}
	clock0, _ := s.nextClock(0)
	return s.nextDay(day+1)*secondsPerDay + int64(clock0), true
}

// prev returns the last matching wall time at or before wall. The schedule must not be @every.
func (s *Schedule) prev(wall int64) (int64, bool) {
	if s.never {
		return 0, false
	}
	day, clock := floorDiv(wall, secondsPerDay)
	if s.matchesDay(day) {
		if clock, ok := s.prevClock(int(clock)); ok {
			return day*secondsPerDay + int64(clock), true
		}
	}
	last, _ := s.prevClock(secondsPerDay - 1)
	return s.prevDay(day-1)*secondsPerDay + int64(last), true
}

// count returns the number of matching wall times in [from, to). The schedule must not be @every.
func (s *Schedule) count(from, to int64) int64 {
	if s.never || from >= to {
		return 0
	}
	first, clockFrom := floorDiv(from, secondsPerDay)
	last, clockTo := floorDiv(to, secondsPerDay)
	n := s.perDay * s.countDays(first, last)
	if s.matchesDay(first) {
		n -= s.countClock(clockFrom)
	}
	if s.matchesDay(last) {
		n += s.countClock(clockTo)
	}
	return n
}

// matches reports whether a wall time matches. The schedule must not be @every.
func (s *Schedule) matches(wall int64) bool {
	w, ok := s.next(wall)
	return ok && w == wall
}

// nextClock returns the first matching second of a day at or after clock.
func (s *Schedule) nextClock(clock int) (int, bool) {
	h, m, sec := clock/secondsPerHour, clock/secondsPerMinute%60, clock%60
	if s.hour>>h&1 != 0 {
		if s.minute>>m&1 != 0 {
			if rest := s.second >> sec << sec; rest != 0 {
				return clock - sec + bits.TrailingZeros64(rest), true
			}
		}
		if rest := s.minute >> (m + 1) << (m + 1); rest != 0 {
			return h*secondsPerHour + bits.TrailingZeros64(rest)*secondsPerMinute + bits.TrailingZeros64(s.second), true
		}
	}
	if rest := s.hour >> (h + 1) << (h + 1); rest != 0 {
		return bits.TrailingZeros32(rest)*secondsPerHour + bits.TrailingZeros64(s.minute)*secondsPerMinute +
			bits.TrailingZeros64(s.second), true
	}
	return 0, false
}

// prevClock returns the last matching second of a day at or before clock.
func (s *Schedule) prevClock(clock int) (int, bool) {
	h, m, sec := clock/secondsPerHour, clock/secondsPerMinute%60, clock%60
	if s.hour>>h&1 != 0 {
		if s.minute>>m&1 != 0 {
			if rest := s.second & upTo(sec); rest != 0 {
				return clock - sec + highest(rest), true
			}
		}
		if rest := s.minute & upTo(m-1); rest != 0 {
			return h*secondsPerHour + highest(rest)*secondsPerMinute + highest(s.second), true
		}
	}
	if rest := uint64(s.hour) & upTo(h-1); rest != 0 {
		return highest(rest)*secondsPerHour + highest(s.minute)*secondsPerMinute + highest(s.second), true
	}
	return 0, false
}

// countClock returns the number of matching seconds of a day before clock.
func (s *Schedule) countClock(clock int64) int64 {
	h, m, sec := int(clock/secondsPerHour), int(clock/secondsPerMinute%60), int(clock%60)
	perMinute := bits.OnesCount64(s.second)
	perHour := bits.OnesCount64(s.minute) * perMinute
	n := bits.OnesCount64(uint64(s.hour)&upTo(h-1)) * perHour
	if s.hour>>h&1 != 0 {
		n += bits.OnesCount64(s.minute&upTo(m-1)) * perMinute
		if s.minute>>m&1 != 0 {
			n += bits.OnesCount64(s.second & upTo(sec-1))
		}
	}
	return int64(n)
}

// upTo returns the set of 0 to n; n may be -1.
func upTo(n int) uint64 { return 1<<(n+1) - 1 }

func highest(set uint64) int { return 63 - bits.LeadingZeros64(set) }

const (
	daysPerEra    = 146097 // the Gregorian calendar repeats after 400 years, to the day of the week
	yearsPerEra   = 400
	monthsPerYear = 12
)

// calendarMonth is a month and its first day.
type calendarMonth struct {
	year  int64
	month int // 1 to 12
	first int64
}

// monthOf returns the month of a day.
func monthOf(day int64) calendarMonth {
	// Years start in March here, so that the leap day is the last of its year, and eras on
	// 0000-03-01.
	era, dayOfEra := floorDiv(day+719468, daysPerEra)
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	// From March on, the lengths of months repeat 31, 30, 31, 30, 31: 153 days in five months.
	m := (5*dayOfYear + 2) / 153
	first := day - (dayOfYear - (153*m+2)/5)
	year := era*yearsPerEra + yearOfEra
	if m < 10 {
		return calendarMonth{year, int(m) + 3, first}
	}
	return calendarMonth{year + 1, int(m) - 9, first}
}

func (c calendarMonth) days() int {
	switch c.month {
	case 2:
		if c.year%4 == 0 && (c.year%100 != 0 || c.year%yearsPerEra == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

func (c calendarMonth) next() calendarMonth {
	next := calendarMonth{c.year, c.month + 1, c.first + int64(c.days())}
	if next.month > monthsPerYear {
		next.year, next.month = next.year+1, 1
	}
	return next
}

func (c calendarMonth) prev() calendarMonth {
	prev := calendarMonth{year: c.year, month: c.month - 1}
	if prev.month == 0 {
		prev.year, prev.month = prev.year-1, monthsPerYear
	}
	prev.first = c.first - int64(prev.days())
	return prev
}

// daysIn returns the matching days of a month as a bit set.
func (s *Schedule) daysIn(c calendarMonth) uint32 {
	if s.month>>c.month&1 == 0 {
		return 0
	}
	_, weekday := floorDiv(c.first+4, 7) // 1970-01-01 was a Thursday.
	return s.daysOf(c.days(), int(weekday))
}

// daysOf returns the matching days of a month that has that many days and begins on that day of the week.
func (s *Schedule) daysOf(length, weekday int) uint32 {
	week := uint64(s.dow>>weekday|s.dow<<(7-weekday)) & 0x7f
	weekdays := uint32(week * (1<<1 | 1<<8 | 1<<15 | 1<<22 | 1<<29))
	dates := s.dom
	if s.relative != (relativeDays{}) {
		weekdays |= s.relative.weekdays(length, weekday)
		dates |= s.relative.dates(length, weekday)
	}
	all := uint32(upTo(length)) &^ 1
	if s.eitherOf {
		return (dates | weekdays) & all
	}
	return dates & weekdays & all
}

// hasDays reports whether any day ever matches. In 400 years every month, including a February of 29
// days, begins on every day of the week.
func (s *Schedule) hasDays() bool {
	for m := 1; m <= monthsPerYear; m++ {
		if s.month>>m&1 == 0 {
			continue
		}
		length := calendarMonth{year: 2000, month: m}.days()
		for weekday := range 7 {
			if s.daysOf(length, weekday) != 0 || m == 2 && s.daysOf(length-1, weekday) != 0 {
				return true
			}
		}
	}
	return false
}

func (s *Schedule) matchesDay(day int64) bool {
	c := monthOf(day)
	return s.daysIn(c)>>(day-c.first+1)&1 != 0
}

// nextDay returns the first matching day at or after day. There must be one. It tries at most 481
// months: each of the 14 kinds of years, by length and first day of the week, recurs within 40 years.
func (s *Schedule) nextDay(day int64) int64 {
	c := monthOf(day)
	passed := int(day - c.first) // days of the month before day
	for {
		if rest := s.daysIn(c) >> (passed + 1) << (passed + 1); rest != 0 {
			return c.first + int64(bits.TrailingZeros32(rest)) - 1
		}
		c, passed = c.next(), 0
	}
}

// prevDay returns the last matching day at or before day. There must be one.
func (s *Schedule) prevDay(day int64) int64 {
	c := monthOf(day)
	rest := uint64(s.daysIn(c)) & upTo(int(day-c.first)+1)
	for rest == 0 {
		c = c.prev()
		rest = uint64(s.daysIn(c))
	}
	return c.first + int64(highest(rest)) - 1
}

// countDays returns the number of matching days in [from, to).
func (s *Schedule) countDays(from, to int64) int64 {
	eras := (to - from) / daysPerEra
	if eras == 0 {
		return s.countMonths(from, to)
	}
	return eras*s.countMonths(from, from+daysPerEra) + s.countMonths(from+eras*daysPerEra, to)
}

// countMonths returns the number of matching days in [from, to), month by month.
func (s *Schedule) countMonths(from, to int64) int64 {
	var n int64
	for c := monthOf(from); c.first < to; c = c.next() {
		set := uint64(s.daysIn(c))
		if c.first < from {
			set &^= upTo(int(from - c.first))
		}
		if rest := to - c.first; rest < int64(c.days()) {
			set &= upTo(int(rest))
		}
		n += int64(bits.OnesCount64(set))
	}
	return n
}
