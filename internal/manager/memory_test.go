package manager

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What Go is told about its garbage collector belongs to the whole process: this test does without it.
func TestPacer(t *testing.T) {
	const small, large = 14_000_000, 200_000_000
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		after []time.Duration
		live  uint64
		want  []int
	}{
		{"collections far apart change nothing", []time.Duration{time.Minute, 2 * time.Minute}, small, []int{gcPercent}},
		{"in a burst a small heap has room", []time.Duration{time.Minute, burstGap / 2}, small, []int{gcPercent, 300}},
		{"a large heap has room as it is", []time.Duration{time.Minute, burstGap / 2}, large, []int{gcPercent}},
		{"what holds already is not set again", []time.Duration{time.Minute, burstGap / 4, burstGap / 4}, small, []int{gcPercent, 300}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var got []int
			p := newPacer(func(percent int) int { got = append(got, percent); return 0 })
			p.calm.Stop()
			now := begin
			for _, after := range tc.after {
				now = now.Add(after)
				p.collected(now, tc.live)
				p.calm.Stop()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("percentages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPacerAfterABurst(t *testing.T) {
	set := make(chan int, 3)
	p := newPacer(func(percent int) int { set <- percent; return 0 })
	p.collected(time.Now(), 14_000_000)
	p.collected(time.Now(), 14_000_000)
	p.calm.Reset(0)
	for _, want := range []int{gcPercent, 300, gcPercent} {
		if got := <-set; got != want {
			t.Errorf("the heap may grow by %d percent, want %d", got, want)
		}
	}
}
