package cron

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // For images without a zone database.
)

// Locations are shared: each holds kilobytes of transitions, and many objects use the same few.
var locations sync.Map // string -> *time.Location

// LoadLocation returns the time zone with an IANA name such as "Europe/Berlin", or UTC for the
// empty name. The zone database of the machine takes precedence over the embedded one. "Local" is
// rejected, because it depends on the machine.
func LoadLocation(name string) (*time.Location, error) {
	if found, ok := locations.Load(name); ok {
		return found.(*time.Location), nil
	}
	if name == "Local" {
		return nil, fmt.Errorf("time zone %q depends on the machine; use an IANA name such as Europe/Berlin", name)
	}
	location, err := time.LoadLocation(name)
	if err != nil || name != "" && !isZoneName(name) {
		// The error of package time also mentions local files.
		return nil, fmt.Errorf("unknown time zone %q; use an IANA name such as Europe/Berlin", shorten(name))
	}
	// The map is bounded, because only existing names are stored.
	found, _ := locations.LoadOrStore(name, location)
	return found.(*time.Location), nil
}

// isZoneName reports whether a text can be a name of the IANA database. Package time interprets
// names as paths: it accepts "Europe//Berlin", and in many zone directories also localtime and
// right/UTC (which counts leap seconds). Names of the database begin with a capital letter.
func isZoneName(name string) bool {
	if name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	for word := range strings.SplitSeq(name, "/") {
		if strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-") != "" || word == "" {
			return false
		}
	}
	return true
}

const (
	// Runs are in the years 1 to 9999, the range of RFC 3339.
	firstInstant = -62135596800
	lastInstant  = 253402300799

	// lastZoneChange is 1 January 2100. After it, zones change only by yearly rules. The zone
	// database lists the changes of Morocco, which follow no rule, until 2087.
	lastZoneChange = 4102444800

	// correction is the size from which a change of the offset counts as a clock correction and not
	// as daylight saving: cron(8) of cronie.
	correction = 3 * secondsPerHour

	// maxOffset is larger than the offset of any zone at any time.
	maxOffset = 26 * secondsPerHour
)

// stretch is an interval with a constant zone offset: the instants in [from, to), in Unix seconds.
// Wall time is the instant plus the offset. Changes in the zone database are at least three days
// apart, so that a gap or repeated hour lies in one stretch.
type stretch struct {
	from, to int64
	offset   int64
	// gap is the number of seconds of wall time that were skipped at from, and repeated the number
	// of seconds that occur for the second time after from. Both are zero for corrections.
	gap, repeated int64
}

// stretchAt returns the stretch that contains an instant.
func stretchAt(location *time.Location, instant int64) stretch {
	t := time.Unix(instant, 0).In(location)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	s := stretch{from: math.MinInt64 / 2, to: math.MaxInt64 / 2, offset: int64(offset)}
	if !end.IsZero() {
		s.to = end.Unix()
	}
	if s.to <= instant {
		// For years computed from a rule, package time assumes 365 days here: on the last day of a
		// leap year the stretch seems to be over. The next stretch begins with the new year and has
		// the same offset.
		start, _ := t.Add(secondsPerDay * time.Second).ZoneBounds()
		s.to = max(start.Unix(), instant+1)
	}
	if start.IsZero() {
		return s
	}
	s.from = start.Unix()
	_, before := time.Unix(s.from-1, 0).In(location).Zone()
	switch change := s.offset - int64(before); {
	case change > 0 && change < correction:
		s.gap = change
	case change < 0 && change > -correction:
		s.repeated = -change
	}
	return s
}
