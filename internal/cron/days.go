package cron

import "math/bits"

const (
	daysPerEra    = 146097 // the Gregorian calendar repeats after 400 years, to the day of the week
	yearsPerEra   = 400
	monthsPerYear = 12
)

// calendarMonth is a month and the day it begins with.
type calendarMonth struct {
	year  int64
	month int // 1 to 12
	first int64
}

// monthOf returns the month that a day is in.
func monthOf(day int64) calendarMonth {
	// Years are counted from March on here, so that the leap day is the last of its year, and
	// eras from 0000-03-01.
	era, dayOfEra := floorDiv(day+719468, daysPerEra)
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	// From March on, the months have 31, 30, 31, 30, 31 days over and over: 153 in five.
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

// daysIn returns the days of a month that match, as a set: bit n stands for the nth.
func (s *Schedule) daysIn(c calendarMonth) uint32 {
	if s.month>>c.month&1 == 0 {
		return 0
	}
	_, weekday := floorDiv(c.first+4, 7) // 1970-01-01 was a Thursday.
	week := uint64(s.dow>>weekday|s.dow<<(7-weekday)) & 0x7f
	weekdays := uint32(week * (1<<1 | 1<<8 | 1<<15 | 1<<22 | 1<<29))
	all := uint32(upTo(c.days())) &^ 1
	if s.eitherOf {
		return (s.dom | weekdays) & all
	}
	return s.dom & weekdays & all
}

// hasDays reports whether any day ever matches. In 400 years every date, 29 February too, falls
// on every day of the week, so this depends on the lengths of the months only.
func (s *Schedule) hasDays() bool {
	if s.eitherOf {
		return true // there is a day of the week in every month
	}
	for m := 1; m <= monthsPerYear; m++ {
		length := calendarMonth{year: 2000, month: m}.days()
		if s.month>>m&1 != 0 && uint64(s.dom)&upTo(length) != 0 {
			return true
		}
	}
	return false
}

func (s *Schedule) matchesDay(day int64) bool {
	c := monthOf(day)
	return s.daysIn(c)>>(day-c.first+1)&1 != 0
}

// nextDay returns the first day from day on that matches. There must be days that match. It looks
// at 481 months at most: 29 February on a given day of the week comes after 40 years at the latest.
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

// prevDay returns the last day up to day that matches, as nextDay does.
func (s *Schedule) prevDay(day int64) int64 {
	c := monthOf(day)
	rest := uint64(s.daysIn(c)) & upTo(int(day-c.first)+1)
	for rest == 0 {
		c = c.prev()
		rest = uint64(s.daysIn(c))
	}
	return c.first + int64(highest(rest)) - 1
}

// countDays returns how many days in [from, to) match.
func (s *Schedule) countDays(from, to int64) int64 {
	eras := (to - from) / daysPerEra
	if eras == 0 {
		return s.countMonths(from, to)
	}
	return eras*s.countMonths(from, from+daysPerEra) + s.countMonths(from+eras*daysPerEra, to)
}

// countMonths returns how many days in [from, to) match, from month to month.
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
