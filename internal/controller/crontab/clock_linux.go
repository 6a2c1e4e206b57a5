package crontab

import (
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// exactClock is the real clock, with a Sleep that ends on time: those of Go end up to a millisecond late when nothing else
// is to be done, for the kernel is asked to wake the process by whole milliseconds.
type exactClock struct{ clock.RealClock }

// Sleep implements clock.Clock. It blocks a thread: it is for milliseconds.
func (exactClock) Sleep(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for d > 0 && syscall.Nanosleep(&left, &left) == syscall.EINTR {
		continue // with the rest
	}
}
