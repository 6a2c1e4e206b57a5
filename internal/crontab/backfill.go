package crontab

import (
	"errors"
	"fmt"
	"time"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/requests"
)

// maxBackfill is the largest number of scheduled times of a backfill. A larger one is more likely a mistake in a date than meant.
const maxBackfill = 10000

// ParseTime returns the time that people write as a date or a time, without an offset in a time zone.
func ParseTime(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errors.New("must be a date such as 2026-12-24, or a time such as 2026-12-24T08:00 or 2026-12-24T08:00:00Z")
}

// Backfill is the scheduled times of a backfill, in its order.
type Backfill struct {
	schedule    *Schedule
	after, upTo time.Time
	latestFirst bool
}

// NewBackfill returns the scheduled times of spec.backfill, which must be set. It fails if there are too many.
func (t *Schedule) NewBackfill(spec *stablev1.Backfill) (Backfill, error) {
	b := Backfill{schedule: t, after: spec.From.Add(-time.Nanosecond), upTo: spec.To.Time, latestFirst: spec.Order == stablev1.LatestFirst}
	if now := requests.At(&spec.RequestedAt); now.Before(b.upTo) {
		b.upTo = now
	}
	if n := b.Len(); n > maxBackfill {
		return b, fmt.Errorf("the range has %d scheduled times, more than %d: backfill a part of it at a time", n, maxBackfill)
	}
	return b, nil
}

// Len returns the number of times.
func (b Backfill) Len() int { return b.schedule.Count(b.after, b.upTo) }

// Next returns the time that follows another one; the first if that is zero, and false if there is none.
func (b Backfill) Next(reached time.Time) (time.Time, bool) {
	if b.latestFirst {
		before := b.upTo.Add(time.Nanosecond)
		if !reached.IsZero() {
			before = reached
		}
		at, ok := b.schedule.Prev(before)
		return at, ok && at.After(b.after)
	}
	after := b.after
	if !reached.IsZero() {
		after = reached
	}
	at, ok := b.schedule.Next(after)
	return at, ok && !at.After(b.upTo)
}

// Done returns the number of times up to one that was reached.
func (b Backfill) Done(reached time.Time) int {
	switch {
	case reached.IsZero():
		return 0
	case b.latestFirst:
		return b.schedule.Count(reached.Add(-time.Nanosecond), b.upTo)
	}
	return b.schedule.Count(b.after, reached)
}

// IsAhead reports whether a time is in the range and has not been reached.
func (b Backfill) IsAhead(at, reached time.Time) bool {
	return at.After(b.after) && !at.After(b.upTo) && !b.IsReached(at, reached)
}

// IsReached reports whether a time is not after another one that was reached, in the order of the backfill.
func (b Backfill) IsReached(at, reached time.Time) bool {
	return !reached.IsZero() && (at.Equal(reached) || at.Before(reached) != b.latestFirst)
}
