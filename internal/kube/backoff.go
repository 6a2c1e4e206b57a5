package kube

import "time"

// firstBackoff is the backoff after the first failure.
const firstBackoff = 10 * time.Second

// Backoff returns the backoff after a number of consecutive failures: 10 s, doubled with each failure, up to longest. It is
// for failures that a status counts, so that the backoff survives a restart of the manager. For failures counted in memory,
// use wait.Backoff or the rate limiter of the work queue.
func Backoff(failures int32, longest time.Duration) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(firstBackoff<<min(failures-1, 16), longest)
}
