package cron

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // For images without a zone database.
)

// Locations are shared: each holds kilobytes of transitions, and many objects name the same few.
var locations sync.Map // string -> *time.Location

// LoadLocation returns the time zone of an IANA name such as "Europe/Berlin"; the empty name is
// UTC. The zone database of the machine goes before the one in the binary. "Local" is refused,
// since it means something else on every machine.
func LoadLocation(name string) (*time.Location, error) {
	if found, ok := locations.Load(name); ok {
		return found.(*time.Location), nil
	}
	if name == "Local" {
		return nil, fmt.Errorf("time zone %q depends on the machine; use a name of the IANA database such as Europe/Berlin", name)
	}
	location, err := time.LoadLocation(name)
	if err != nil || name != "" && !isZoneName(name) {
		// What package time says beyond that is about files of this machine.
		return nil, fmt.Errorf("time zone %q is not known; use a name of the IANA database such as Europe/Berlin", shorten(name))
	}
	// Bounded, because only names that exist come here.
	found, _ := locations.LoadOrStore(name, location)
	return found.(*time.Location), nil
}

// isZoneName reports whether a text can be a name of the IANA database. Package time takes names for
// paths: "Europe//Berlin" would be one, and in many directories localtime and right/UTC (which
// counts leap seconds) are. Names of the database begin with a capital letter.
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
	// Runs are in the years 1 to 9999: what RFC 3339 can write.
	firstInstant = -62135596800
	lastInstant  = 253402300799

	// lastZoneChange is a time after which no zone has changes but those that its rule repeats every
	// year: 1 January 2100. The zone database has those of Morocco, where no rule fits, until 2087.
	lastZoneChange = 4102444800

	// correction is the size from which on a change of the offset counts as a correction of the
	// clock, and not as one for daylight saving: cron(8) of cronie.
	correction = 3 * secondsPerHour

	// maxOffset is more than the offset of any zone at any time.
	maxOffset = 26 * secondsPerHour
)

// stretch is a time in which the offset of a zone stays the same: the instants in [from, to),
// in Unix seconds. Wall time is the instant plus the offset. No two changes in the zone database
// are closer than three days, so that gaps and repeated hours lie in one stretch.
type stretch struct {
	from, to int64
	offset   int64
	// gap is the number of seconds of wall time that were skipped at from, and repeated the
	// number that come for the second time from there on. Both are zero for corrections.
	gap, repeated int64
}

// stretchAt returns the stretch that an instant is in.
func stretchAt(location *time.Location, instant int64) stretch {
	t := time.Unix(instant, 0).In(location)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	s := stretch{from: math.MinInt64 / 2, to: math.MaxInt64 / 2, offset: int64(offset)}
	if !end.IsZero() {
		s.to = end.Unix()
	}
	if s.to <= instant {
		// In years that its rules make up, package time gives every year 365 days here: on the
		// last day of a leap year the stretch seems to be over already. The next one is the
		// beginning of the new year, which has the same offset.
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
