package kube

import (
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/clocks"
)

func TestSecondsAreNeverNegative(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for length, want := range map[time.Duration]float64{-time.Hour: 0, -1: 0, 0: 0, 1500 * time.Millisecond: 1.5} {
		if got := Seconds(noon, noon.Add(length)); got != want {
			t.Errorf("%v count as %v s, want %v", length, got, want)
		}
	}
}

func TestElapsed(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		end  time.Time
		want time.Duration
	}{
		{name: "nothing happened", end: clocks.Reading(noon.Add(time.Minute), time.Minute), want: time.Minute},
		{name: "the machine was suspended", end: clocks.Reading(noon.Add(time.Hour), time.Second), want: time.Hour},
		{name: "the wall clock was set back", end: clocks.Reading(noon.Add(-time.Hour), time.Minute), want: time.Minute},
		{name: "one reading has the wall clock only", end: noon.Add(time.Minute), want: time.Minute},
	} {
		if got := Elapsed(clocks.Reading(noon, 0), tt.end); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
