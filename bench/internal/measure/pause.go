package measure

import (
	"context"
	"time"
)

// Pause waits for a while. The error is why ctx ended before. A time that has passed is no error.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
