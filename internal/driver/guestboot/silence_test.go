package guestboot

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		reason string
		boot   Boot
		want   Decision
	}{
		{"it was just powered on", Boot{Usual: 2 * s}, Wait},
		{"it has spoken", Boot{Usual: 2 * s, Ran: time.Hour, Spoke: true}, Leave},
		{"it has spoken after a reset", Boot{Usual: 2 * s, Spoke: true, Resets: 3}, Leave},
		{"an image without output and agent is never reset", Boot{Ran: time.Hour}, Leave},
		{"even a quick guest has half a minute", Boot{Usual: s / 10, Ran: 29 * s}, Wait},
		{"no more than that", Boot{Usual: s / 10, Ran: 30 * s}, Reset},
		{"a slow guest has a multiple of what it needs", Boot{Usual: 10 * s, Ran: 99 * s}, Wait},
		{"no more than that multiple", Boot{Usual: 10 * s, Ran: 100 * s}, Reset},
		{"one very slow boot does not count for ever", Boot{Usual: time.Hour, Ran: 10 * time.Minute}, Reset},
		{"after a reset it has twice the time", Boot{Usual: s, Ran: 59 * s, Resets: 1}, Wait},
		{"a second reset", Boot{Usual: s, Ran: 60 * s, Resets: 1}, Reset},
		{"a third reset", Boot{Usual: s, Ran: 120 * s, Resets: 2}, Reset},
		{"the last boot has its time, too", Boot{Usual: s, Ran: 239 * s, Resets: 3}, Wait},
		{"no fourth reset", Boot{Usual: s, Ran: 240 * s, Resets: 3}, GiveUp},
		{"nor a later one", Boot{Usual: s, Ran: time.Hour, Resets: 9}, GiveUp},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := Decide(test.boot); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
