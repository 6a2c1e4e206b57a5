package kube

import (
	"testing"
	"time"
)

func TestSecondsAreNeverNegative(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for length, want := range map[time.Duration]float64{-time.Hour: 0, -1: 0, 0: 0, 1500 * time.Millisecond: 1.5} {
		if got := Seconds(noon, noon.Add(length)); got != want {
			t.Errorf("%v count as %v s, want %v", length, got, want)
		}
	}
}
