package crontab

import (
	"testing"
	"time"
)

// Whatever somebody waits for, or has to be told of, is not left to a later look.
func TestIsRoutine(t *testing.T) {
	due := noon
	tests := []struct {
		name   string
		change func(*plan)
		want   bool
	}{
		{"a run at its time", func(*plan) {}, true},
		{"nothing is started", func(p *plan) { p.start = nil }, false},
		{"somebody asked for it", func(p *plan) { p.start.manual = true }, false},
		{"it is late", func(p *plan) { p.now = due.Add(onTime + time.Second) }, false},
		{"all else has waited for long", func(p *plan) { p.overdue = true }, false},
		{"others wait as well", func(p *plan) { p.queued = 2 }, false},
		{"others are kept waiting", func(p *plan) { p.progress.waiting = []time.Time{due, due.Add(time.Second)} }, false},
		{"runs were missed", func(p *plan) { p.missed = 1 }, false},
		{"there were too many", func(p *plan) { p.overflow = true }, false},
		{"one is blocked", func(p *plan) { p.blocked = &start{due: due} }, false},
		{"the timetable is another one", func(p *plan) { p.restarted = true }, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := plan{now: due.Add(time.Millisecond), queued: 1, start: &start{at: due, due: due}, progress: progress{waiting: []time.Time{due}}}
			tc.change(&p)
			if got := p.isRoutine(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
