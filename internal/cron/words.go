package cron

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// mostTimes is the number of times of a day that are listed one by one.
const mostTimes = 6

// Words returns the schedule in English, such as "At 03:00 on Monday to Friday". H has its value. Schedules that match
// different times have different words.
func (s *Schedule) Words() string {
	switch {
	case s.every > 0:
		return "Every " + durationWords(s.every) + ", counted from the creation"
	case s.never:
		return "Never: there is no such date"
	}
	words := s.clockWords() + s.dayWords()
	if months := setOf(uint64(s.month)); len(months) < monthsPerYear {
		words += " in " + names(months, func(m int) string { return time.Month(m).String() })
	}
	return words
}

// durationWords returns a duration without units that are zero.
func durationWords(seconds int64) string {
	var text string
	for _, unit := range []struct {
		size int64
		name string
	}{{secondsPerHour, "h"}, {secondsPerMinute, "m"}, {1, "s"}} {
		if n := seconds / unit.size; n > 0 {
			text += fmt.Sprint(n) + unit.name
		}
		seconds %= unit.size
	}
	return text
}

// clockWords returns the times of a day: one by one if they are few, otherwise unit by unit.
func (s *Schedule) clockWords() string {
	if s.perDay <= mostTimes {
		return "At " + join(s.clocks())
	}
	seconds, minutes, hours := setOf(s.second), setOf(s.minute), setOf(uint64(s.hour))
	onlyZero := func(values []int) bool { return slices.Equal(values, []int{0}) }
	if onlyZero(seconds) && onlyZero(minutes) && stepOf(hours, 24) > 0 {
		return "Every " + stepWords("hour", stepOf(hours, 24))
	}
	var words string
	every := false // of the last unit, all or every few values match
	add := func(unit string, values []int, size int) {
		step := stepOf(values, size)
		switch {
		case step == 1 && every:
			return
		case words == "" && step > 0:
			words = "Every " + stepWords(unit, step)
		case words == "":
			words = "At " + valueWords(unit, values)
		case step > 0:
			words += " of every " + ordinal(step) + unit
		default:
			words += " of " + valueWords(unit, values)
		}
		every = step > 0
	}
	if !onlyZero(seconds) {
		add("second", seconds, 60)
	}
	add("minute", minutes, 60)
	add("hour", hours, 24)
	return words
}

// clocks returns the times of a day.
func (s *Schedule) clocks() []string {
	layout := "15:04"
	if s.second != 1 {
		layout = time.TimeOnly
	}
	var times []string
	for clock, ok := s.nextClock(0); ok; clock, ok = s.nextClock(clock + 1) {
		times = append(times, time.Unix(int64(clock), 0).UTC().Format(layout))
		if clock == secondsPerDay-1 {
			break
		}
	}
	return times
}

// stepWords returns the unit of "every": "minute" or "5 minutes".
func stepWords(unit string, step int) string {
	if step == 1 {
		return unit
	}
	return fmt.Sprintf("%d %ss", step, unit)
}

func valueWords(unit string, values []int) string {
	if len(values) > 1 {
		unit += "s"
	}
	return unit + " " + names(values, func(v int) string { return fmt.Sprint(v) })
}

// ordinal returns "2nd " and so on, and "" for 1.
func ordinal(n int) string {
	suffix := "th"
	switch {
	case n == 1:
		return ""
	case n/10 != 1 && n%10 >= 1 && n%10 <= 3:
		suffix = []string{"st", "nd", "rd"}[n%10-1]
	}
	return fmt.Sprintf("%d%s ", n, suffix)
}

// stepOf returns n if the values are all multiples of n below size, and n divides size; otherwise 0.
func stepOf(values []int, size int) int {
	if size%len(values) != 0 || len(values) == 1 {
		return 0
	}
	if step := size / len(values); isEvery(values, step) {
		return step
	}
	return 0
}

// isEvery reports whether values are the multiples of step.
func isEvery(values []int, step int) bool {
	for i, v := range values {
		if v != i*step {
			return false
		}
	}
	return true
}

// dayWords returns the days of a month, of the week, or both, with a space before them; "" for all days.
func (s *Schedule) dayWords() string {
	dates, weekdays := setOf(uint64(s.dom)), setOf(uint64(s.dow))
	allDates, allWeekdays := len(dates) == 31, len(weekdays) == 7
	var parts []string
	if len(dates) > 0 {
		parts = append(parts, valueWords("day", dates)+" of the month")
	}
	theDates := join(append(parts, s.relative.dateWords()...))
	// Sunday comes last, as in FRI-SUN.
	if len(weekdays) > 1 && weekdays[0] == 0 {
		weekdays = append(weekdays[1:], 7)
	}
	parts = nil
	if len(weekdays) > 0 {
		parts = append(parts, names(weekdays, func(d int) string { return time.Weekday(d % 7).String() }))
	}
	theWeekdays := join(append(parts, s.relative.weekdayWords()...))
	switch {
	case s.eitherOf && (allDates || allWeekdays), allDates && allWeekdays:
		if s.perDay <= mostTimes {
			return " every day"
		}
		return ""
	case s.eitherOf:
		return " on " + theDates + ", and on " + theWeekdays
	case allDates:
		return " on " + theWeekdays
	case allWeekdays:
		return " on " + theDates
	}
	return " on " + theWeekdays + " if it is " + theDates
}

// setOf returns the members of a bit set.
func setOf(set uint64) []int {
	var members []int
	for ; set != 0; set &= set - 1 {
		members = append(members, bits.TrailingZeros64(set))
	}
	return members
}

// names returns a list of values, with ranges for three and more in a row.
func names(values []int, name func(int) string) string {
	var words []string
	for i := 0; i < len(values); {
		last := i
		for last+1 < len(values) && values[last+1] == values[last]+1 {
			last++
		}
		if last < i+2 {
			words = append(words, name(values[i]))
			i++
			continue
		}
		words = append(words, name(values[i])+" to "+name(values[last]))
		i = last + 1
	}
	return join(words)
}

func join(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
