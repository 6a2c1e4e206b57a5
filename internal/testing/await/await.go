// Package await waits for conditions in tests.
package await

import (
	"testing"
	"time"
)

// Until waits until check is true, and fails the test after a timeout. what describes the condition. Pauses between checks leave most of
// the processor time to what is waited for: they are at least twice as long as a check, and a tenth of the time waited so far.
func Until(t testing.TB, timeout time.Duration, what string, check func() bool) {
	t.Helper()
	for start := time.Now(); ; {
		began := time.Now()
		if check() {
			return
		}
		waited := time.Since(start)
		if waited > timeout {
			t.Fatalf("%s: not within %v", what, timeout)
		}
		<-time.After(max(5*time.Millisecond, 2*time.Since(began), min(waited/10, time.Second)))
	}
}
