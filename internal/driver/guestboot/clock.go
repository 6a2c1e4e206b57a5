package guestboot

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Clock measures how long a process runs, without the time in which it waits for a processor: a guest that is slow because its host is busy
// does not hang.
type Clock struct {
	// PID is the process.
	PID int

	used, waited time.Duration
}

// Tick returns the part of an interval, since the last call, in which the process had what it needed of the processors.
func (c *Clock) Tick(interval time.Duration) time.Duration {
	used, waited := schedule(c.PID)
	part := share(interval, used-c.used, waited-c.waited)
	c.used, c.waited = used, waited
	return part
}

// share returns the part of an interval in which threads had a processor that used it and waited for it so long.
func share(interval, used, waited time.Duration) time.Duration {
	if used < 0 || waited <= 0 { // a thread has ended
		return interval
	}
	return time.Duration(float64(interval) * float64(used) / float64(used+waited))
}

// schedule returns how long the threads of a process have used a processor and waited for one; zero if that is not known.
func schedule(pid int) (used, waited time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The time on the processor and the time of waiting for it, in nanoseconds, see Documentation/scheduler/sched-stats.rst of Linux.
		var on, off time.Duration
		if _, err := fmt.Sscan(string(raw), &on, &off); err == nil {
			used, waited = used+on, waited+off
		}
	}
	return used, waited
}
