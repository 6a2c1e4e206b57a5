package guestboot

import (
	"os"
	"testing"
	"time"
)

func TestShare(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		reason               string
		used, waited, wanted time.Duration
	}{
		{"it had a processor all the time", 10 * s, 0, 10 * s},
		{"it did not want one", 0, 0, 10 * s},
		{"it had a tenth of one", s, 9 * s, s},
		{"two threads had a half of what they wanted", 10 * s, 10 * s, 5 * s},
		{"it had none", 0, 10 * s, 0},
		{"a thread has ended", -s, s, 10 * s},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := share(10*s, test.used, test.waited); got != test.wanted {
				t.Errorf("got %v, want %v", got, test.wanted)
			}
		})
	}
}

func TestClock(t *testing.T) {
	clock := Clock{PID: os.Getpid()}
	for clock.used == 0 { // this process uses a processor
		if got := clock.Tick(time.Hour); got < 0 || got > time.Hour {
			t.Fatalf("a part of an hour is %v", got)
		}
	}
	if got := (&Clock{}).Tick(time.Hour); got != time.Hour {
		t.Errorf("without a process it is %v", got)
	}
}
