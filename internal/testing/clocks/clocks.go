// Package clocks has clock readings that a test cannot wait for.
package clocks

import (
	"time"
	"unsafe"
)

// Reading returns the result of time.Now for a wall clock and a monotonic clock. So two readings
// can differ in one clock alone: the wall clock is ahead after a suspend of the machine, and behind
// after it was set back. Package time cannot produce such readings: Add moves both clocks, and a
// synctest bubble has only one.
func Reading(wall time.Time, monotonic time.Duration) time.Time {
	const (
		hasMonotonic = 1 << 63
		secondsShift = 30
	)
	t := wall.Round(0)
	// The layout is documented in the source of time.Time: a flag, the seconds since 1885, the
	// nanoseconds, and the monotonic clock.
	fields := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	first := time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
	fields.wall = hasMonotonic | uint64(t.Unix()-first.Unix())<<secondsShift | uint64(t.Nanosecond())
	fields.ext = int64(monotonic)
	return t
}
