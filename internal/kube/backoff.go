package kube

import "time"

// firstBackoff is the pause after the first failure.
const firstBackoff = 10 * time.Second

// Backoff returns the pause after a number of failures in a row: 10 s, doubled with each one, up to the longest. It is for
// failures that a status counts, so that the pause is the same after a restart of the manager; what is counted in memory uses
// wait.Backoff or a rate limiter of the work queue.
func Backoff(failures int32, longest time.Duration) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(firstBackoff<<min(failures-1, 16), longest)
}
