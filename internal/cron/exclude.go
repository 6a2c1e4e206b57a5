package cron

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DateRange is a range of dates, both ends included, without a zone.
type DateRange struct {
	first, last int64 // days since 1970-01-01
}

// ParseDateRange parses a date such as "2026-12-24" or a range such as "2026-12-24/2027-01-01".
// Errors are of type *[ParseError].
func ParseDateRange(text string) (DateRange, error) {
	first, last, ranged := token{text, 0}.cut("/")
	fail := func(part token, format string, args ...any) (DateRange, error) {
		if part.text == "" {
			part = token{text, 0}
		}
		return DateRange{}, &ParseError{Text: shorten(text), Field: "date", Offset: part.offset, Part: shorten(part.text),
			Message: fmt.Sprintf(format, args...)}
	}
	if !ranged {
		last = first
	}
	var days [2]int64
	for i, part := range []token{first, last} {
		t, err := time.Parse(time.DateOnly, part.text)
		if err != nil || t.Year() < 1 {
			return fail(part, "must be a date such as 2026-12-24 or a range such as 2026-12-24/2027-01-01")
		}
		days[i], _ = floorDiv(t.Unix(), secondsPerDay)
	}
	if days[0] > days[1] {
		return fail(last, "must not be before %s", first.text)
	}
	return DateRange{days[0], days[1]}, nil
}

// String returns the range in the format of ParseDateRange.
func (r DateRange) String() string {
	date := func(day int64) string { return time.Unix(day*secondsPerDay, 0).UTC().Format(time.DateOnly) }
	if r.first == r.last {
		return date(r.first)
	}
	return strings.Join([]string{date(r.first), date(r.last)}, "/")
}

// interval is the instants in [from, to).
type interval struct{ from, to int64 }

// excludedIntervals returns the instants at which a clock in the zone shows one of the dates, in
// order and without overlaps. A date may consist of several intervals: where the clock is set back
// at midnight, it ends and starts again.
func excludedIntervals(ranges []DateRange, location *time.Location) []interval {
	var all []interval
	for _, r := range ranges {
		from, to := r.first*secondsPerDay, (r.last+1)*secondsPerDay // wall times
		// In the middle every instant is excluded, whatever the offset.
		middle := interval{from + maxOffset, to - maxOffset}
		if middle.from >= middle.to {
			all = appendShowing(all, location, interval{from - maxOffset, to + maxOffset}, from, to)
			continue
		}
		all = appendShowing(all, location, interval{from - maxOffset, middle.from}, from, to)
		all = append(all, middle)
		all = appendShowing(all, location, interval{middle.to, to + maxOffset}, from, to)
	}
	slices.SortFunc(all, func(a, b interval) int {
		return cmp.Compare(a.from, b.from)
	})
	var merged []interval
	for _, i := range all {
		if n := len(merged); n > 0 && i.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, i.to)
			continue
		}
		merged = append(merged, i)
	}
	return slices.Clip(merged)
}

// appendShowing appends the instants of a window whose wall time is in [from, to).
func appendShowing(all []interval, location *time.Location, window interval, from, to int64) []interval {
	for instant := window.from; instant < window.to; {
		here := stretchAt(location, instant)
		i := interval{max(instant, from-here.offset), min(here.to, window.to, to-here.offset)}
		if i.from < i.to {
			all = append(all, i)
		}
		instant = here.to
	}
	return all
}

// excludedAt returns the interval that an instant is in.
func (p *Plan) excludedAt(instant int64) (interval, bool) {
	n, _ := slices.BinarySearchFunc(p.excluded, instant, func(i interval, instant int64) int {
		if i.to <= instant {
			return -1
		}
		return 1
	})
	if n < len(p.excluded) && p.excluded[n].from <= instant {
		return p.excluded[n], true
	}
	return interval{}, false
}

// skipExcluded returns the first instant from instant on that is not excluded.
func (p *Plan) skipExcluded(instant int64) int64 {
	if i, ok := p.excludedAt(instant); ok {
		return i.to
	}
	return instant
}

// skipExcludedBack returns the last instant up to instant that is not excluded.
func (p *Plan) skipExcludedBack(instant int64) int64 {
	if i, ok := p.excludedAt(instant); ok {
		return i.from - 1
	}
	return instant
}
