package clocks

import (
	"testing"
	"time"
)

func TestReading(t *testing.T) {
	wall := time.Date(2026, 3, 4, 12, 0, 0, 42, time.UTC)
	before := Reading(wall, time.Second)
	if !before.Equal(wall) || !before.Round(0).Equal(wall) {
		t.Errorf("the wall clock of the reading is %v, want %v", before, wall)
	}
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		after := Reading(wall.Add(jump), 3*time.Second)
		if got := after.Sub(before); got != 2*time.Second {
			t.Errorf("the monotonic clock moved by %v, want 2 s", got)
		}
		if got := after.Round(0).Sub(before.Round(0)); got != jump {
			t.Errorf("the wall clock moved by %v, want %v", got, jump)
		}
	}
}
