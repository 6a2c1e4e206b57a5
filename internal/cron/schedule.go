package cron

import "math/bits"

const (
	secondsPerMinute = 60
	secondsPerHour   = 60 * secondsPerMinute
	secondsPerDay    = 24 * secondsPerHour
)

// Schedule is one parsed schedule. It is immutable and may be shared. The fields are sets: bit n
// stands for the value n.
type Schedule struct {
	text   string
	second uint64
	minute uint64
	hour   uint32
	dom    uint32
	month  uint16
	dow    uint8 // Sunday is bit 0 only
	// eitherOf says that a day matches if its day of month or its day of week does.
	eitherOf bool
	// wildcard schedules follow real time when the clocks change.
	wildcard bool
	never    bool
	perDay   int64 // number of runs on a day that matches
	every    int64 // seconds of @every, or zero
}

// String returns the text that was parsed, without surrounding space.
func (s *Schedule) String() string { return s.text }

// Never reports whether the schedule never matches, such as one for 31 February.
func (s *Schedule) Never() bool { return s.never }

// The functions below work on wall time: seconds since 1970-01-01 00:00:00 as a clock on the wall
// shows it. Days are days since that date.

// floorDiv returns the quotient rounded down and the remainder, which is never negative.
func floorDiv(a, b int64) (quotient, remainder int64) {
	quotient, remainder = a/b, a%b
	if remainder < 0 {
		quotient, remainder = quotient-1, remainder+b
	}
	return quotient, remainder
}

// next returns the first wall time from wall on that matches. The schedule is one of fields.
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

// prev returns the last wall time up to wall that matches. The schedule is one of fields.
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

// count returns how many wall times in [from, to) match. The schedule is one of fields.
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

// matches reports whether a wall time matches. The schedule is one of fields.
func (s *Schedule) matches(wall int64) bool {
	w, ok := s.next(wall)
	return ok && w == wall
}

// nextClock returns the first second of a day from clock on that matches.
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

// prevClock returns the last second of a day up to clock that matches.
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

// countClock returns how many seconds of a day before clock match.
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
