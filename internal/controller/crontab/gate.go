package crontab

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// headStart is how long before a whole second its runs are decided, so that at the second itself there is nothing left to do
// but to send their Jobs. With two thousand due at once, the first Job came 8 ms after it with half of that, and 4 ms with this.
const headStart = 20 * time.Millisecond

// ahead returns the moment to decide for: now, or the second that is about to begin.
func ahead(now time.Time) time.Time {
	if second := now.Add(headStart).Truncate(time.Second); second.After(now) {
		return second
	}
	return now
}

// ringAt returns when to wake for what is due at a moment: early if ahead finds it by then. Who has looked already, and
// could not decide, is woken at that moment.
func ringAt(due, now time.Time) time.Time {
	if early := due.Add(-headStart); ahead(early).Equal(due) && now.Before(early) {
		return early
	}
	return due
}

// gate holds up those that are early. One of them sleeps and goes first, alone; the others follow when it has come through, or
// after the time of a head start. So there is one Job as soon as the API server can have it: if all workers begin at once, each
// of them gets a part of the processors, and the first of 500 Jobs came after 11 ms instead of 4.
type gate struct {
	clock clock.Clock

	mu    sync.Mutex
	until time.Time
	open  chan struct{}
}

// await returns at a moment that is no further than headStart away, at once if it is past, or when ctx is done. Who has come
// through calls the function that it returns.
func (g *gate) await(ctx context.Context, until time.Time) (through func()) {
	through = func() {}
	if !g.clock.Now().Before(until) {
		return through
	}
	g.mu.Lock()
	isFirst := !g.until.Equal(until)
	if isFirst {
		g.until, g.open = until, make(chan struct{})
	}
	open := g.open
	g.mu.Unlock()
	if isFirst {
		// If it is longer, then somebody has set the clock back.
		if wait := until.Sub(g.clock.Now()); wait <= headStart {
			g.clock.Sleep(wait)
		}
		return sync.OnceFunc(func() { close(open) })
	}
	select {
	case <-open:
	case <-g.clock.After(until.Sub(g.clock.Now()) + headStart):
	case <-ctx.Done():
	}
	return through
}
