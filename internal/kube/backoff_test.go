package kube

import (
	"math"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for failures, want := range map[int32]time.Duration{
		-1: 0, 0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 4: 80 * time.Second, 5: 160 * time.Second,
		6: 300 * time.Second, 7: 300 * time.Second, 1 << 30: 300 * time.Second, math.MaxInt32: 300 * time.Second,
	} {
		if got := Backoff(failures, 300*time.Second); got != want {
			t.Errorf("after %d failures the pause is %v, not %v", failures, got, want)
		}
	}
}
