// Package clocks has readings of clocks that a test cannot wait for.
package clocks

import (
	"time"
	"unsafe"
)

// Reading returns what time.Now returns when the wall clock tells wall and the monotonic clock has run for monotonic. Two
// readings can so differ in one clock alone: the wall clock is ahead after the machine was suspended, and behind after it was set
// back. No function of package time makes such readings: Add moves both clocks, and in a bubble of synctest there is only one.
func Reading(wall time.Time, monotonic time.Duration) time.Time {
	const (
		hasMonotonic = 1 << 63
		secondsShift = 30
	)
	t := wall.Round(0)
	// As the comment of time.Time in its source says: a flag, the seconds since 1885, the nanoseconds, and the monotonic clock.
	fields := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	first := time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
	fields.wall = hasMonotonic | uint64(t.Unix()-first.Unix())<<secondsShift | uint64(t.Nanosecond())
	fields.ext = int64(monotonic)
	return t
}
