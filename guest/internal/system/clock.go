package system

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// SetTime sets the clock of the system. The hardware clock belongs to the host, which keeps it right.
func SetTime(t time.Time) error {
	spec := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &spec); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}
