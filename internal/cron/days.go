package cron

import (
	"fmt"
	"strings"
	"time"
)

// relativeDays are the days of L, W and #, whose dates differ from month to month. They are bit sets.
type relativeDays struct {
	// fromLast has the days before the last day of the month: bit 0 is L, bit 3 is L-3.
	fromLast uint32
	// near has the dates of 15W, and nearFromLast those of LW and L-3W, as in fromLast.
	near, nearFromLast uint32
	// nth has the days of the week of 5L in element 0, and of 5#n in element n. Sunday is bit 0.
	nth [maxNth + 1]uint8
}

const (
	maxNth = 5
	// maxFromLast is the first day of a month with 31 days.
	maxFromLast = 30
)

// misplaced is the message for L, W and # in another field or form.
const misplaced = "L, W and # must be written L, L-3, LW, L-3W or 15W in the day of month, and 5L or 2#1 in the day of week"

// isMisplaced reports whether a value of another field or form looks like L, LW, 5L, 15W or MON#2.
func isMisplaced(text string) bool {
	rest := strings.TrimLeft(text, "0123456789")
	return strings.Contains(text, "#") || rest != "" && strings.Trim(rest, "LWlw") == ""
}

// relative parses an item of a day field with L, W or #. It returns false if the item has none of them.
func (p *fieldParser) relative(item token) (bool, error) {
	switch p.fieldRule {
	case &fieldRules[dayOfMonth]:
		return p.relativeDate(item)
	case &fieldRules[dayOfWeek]:
		return p.relativeWeekday(item)
	}
	return false, nil
}

// relativeDate parses L, L-3, LW, L-3W and 15W.
func (p *fieldParser) relativeDate(item token) (bool, error) {
	day, near := cutLetter(item, 'W')
	set := &p.days.fromLast
	if near {
		set = &p.days.nearFromLast
	}
	before, distance, ranged := day.cut("-")
	switch rest, last := cutLetter(before, 'L'); {
	case last && rest.text == "" && !ranged:
		*set |= 1
		return true, nil
	case last && rest.text == "":
		n, ok := digits(distance.text)
		if !ok || n < 1 || n > maxFromLast {
			return false, p.errorf(item, "the number of days after L must be from 1 to %d", maxFromLast)
		}
		*set |= 1 << n
		return true, nil
	case !near || !isDigits(day.text):
		return false, nil
	}
	n, err := p.value(day)
	p.days.near |= 1 << n
	return err == nil, err
}

// relativeWeekday parses 5L and 2#1, also with the name of the day.
func (p *fieldParser) relativeWeekday(item token) (bool, error) {
	day, last := cutLetter(item, 'L')
	n := 0
	if before, number, counted := item.cut("#"); counted {
		var ok bool
		if n, ok = digits(number.text); !ok || n < 1 || n > maxNth || len(number.text) > 1 {
			return false, p.errorf(item, "the number after # must be from 1 to %d", maxNth)
		}
		day = before
	} else if !last || strings.ContainsAny(day.text, "-/") {
		return false, nil
	}
	if day.text == "" {
		return false, p.errorf(item, "must have a day of the week before L or #, such as 5L for the last Friday and 2#1 for the first Tuesday")
	}
	v, err := p.value(day)
	p.days.nth[n] |= 1 << (v % 7)
	return err == nil, err
}

// cutLetter returns the token without a letter at its end, in either case, and whether it was there.
func cutLetter(t token, upper byte) (token, bool) {
	n := len(t.text)
	if n == 0 || t.text[n-1]&^('a'-'A') != upper {
		return t, false
	}
	return token{t.text[:n-1], t.offset}, true
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// dates returns the dates of fromLast and near in a month that has that many days and begins on that day of the week.
func (r *relativeDays) dates(length, weekday int) uint32 {
	var set uint32
	for n := range maxFromLast + 1 {
		if day := length - n; day >= 1 {
			set |= r.fromLast >> n & 1 << day
			set |= r.nearFromLast >> n & 1 << nearestWeekday(day, length, weekday)
		}
		if day := n + 1; day <= length {
			set |= r.near >> day & 1 << nearestWeekday(day, length, weekday)
		}
	}
	return set
}

// weekdays returns the dates of nth, as dates does.
func (r *relativeDays) weekdays(length, weekday int) uint32 {
	var set uint32
	for day := 1; day <= length; day++ {
		bit := (weekday + day - 1) % 7
		matches := r.nth[(day+6)/7] >> bit & 1
		if day+7 > length {
			matches |= r.nth[0] >> bit & 1
		}
		set |= uint32(matches) << day
	}
	return set
}

// nearestWeekday returns the Monday to Friday of a month that is nearest to a day: 15W. It stays in the month: on the 1st, a
// Saturday, it is Monday the 3rd.
func nearestWeekday(day, length, first int) int {
	switch time.Weekday((first + day - 1) % 7) {
	case time.Saturday:
		if day == 1 {
			return day + 2
		}
		return day - 1
	case time.Sunday:
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

// dateWords returns the dates in English.
func (r *relativeDays) dateWords() []string {
	var words []string
	for _, day := range setOf(uint64(r.near)) {
		words = append(words, fmt.Sprintf("the weekday nearest day %d of the month", day))
	}
	const lastDay = "the %sday before the last day of the month"
	for _, n := range setOf(uint64(r.fromLast)) {
		if n == 0 {
			words = append(words, "the last day of the month")
			continue
		}
		words = append(words, fmt.Sprintf(lastDay, ordinal(n)))
	}
	for _, n := range setOf(uint64(r.nearFromLast)) {
		if n == 0 {
			words = append(words, "the last weekday of the month")
			continue
		}
		words = append(words, "the weekday nearest "+fmt.Sprintf(lastDay, ordinal(n)))
	}
	return words
}

// weekdayWords returns the days of the week in English, the last one of the month after the others.
func (r *relativeDays) weekdayWords() []string {
	var words []string
	for n, which := range []string{"first", "second", "third", "fourth", "fifth", "last"} {
		for _, day := range setOf(uint64(r.nth[(n+1)%len(r.nth)])) {
			words = append(words, fmt.Sprintf("the %s %s of the month", which, time.Weekday(day)))
		}
	}
	return words
}
