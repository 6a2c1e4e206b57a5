package crontab

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// maxSleep limits how long the timer sleeps, because a timer does not notice that the clock was
	// set or that the machine was suspended.
	maxSleep = 5 * time.Second

	// stallThreshold is how late the timer must fire to conclude that this process or the machine
	// was stopped.
	stallThreshold = 3 * time.Second
)

// wakeups is a queue of CronTabs, ordered by the time of their next reconcile, with a single timer.
// An idle CronTab costs nothing.
//
// The delays of a workqueue do not serve here: they follow the monotonic clock, which stops while
// the machine is suspended, and cannot be postponed.
type wakeups struct {
	clock clock.Clock

	mu      sync.Mutex
	entries map[client.ObjectKey]*wakeup
	queue   wakeupHeap
	changed chan struct{}
	// wakesBy is when the timer fires at the latest. stalledAt is when a stall was last detected.
	wakesBy, stalledAt time.Time
}

// wakeup is an entry of the queue.
type wakeup struct {
	key   client.ObjectKey
	at    time.Time
	index int
}

func newWakeups(clock clock.Clock) *wakeups {
	return &wakeups{clock: clock, entries: map[client.ObjectKey]*wakeup{}, changed: make(chan struct{}, 1)}
}

// set schedules the next wakeup of a CronTab and replaces an earlier one. The zero time removes it.
func (a *wakeups) set(key client.ObjectKey, at time.Time) {
	// Schedules follow the wall clock. With monotonic readings, times would sort differently after
	// the machine was suspended.
	at = at.Round(0)
	a.mu.Lock()
	defer a.mu.Unlock()
	e, found := a.entries[key]
	switch {
	case at.IsZero() && found:
		heap.Remove(&a.queue, e.index)
		delete(a.entries, key)
		return
	case at.IsZero():
		return
	case found:
		e.at = at
		heap.Fix(&a.queue, e.index)
	default:
		e = &wakeup{key: key, at: at}
		a.entries[key] = e
		heap.Push(&a.queue, e)
	}
	if a.queue[0] == e {
		select {
		case a.changed <- struct{}{}:
		default:
		}
	}
}

// at returns the next wakeup of a CronTab; zero if there is none.
func (a *wakeups) at(key client.ObjectKey) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, found := a.entries[key]; found {
		return e.at
	}
	return time.Time{}
}

// run calls wake with the CronTabs that are due, and removes their wakeups, until ctx is done.
func (a *wakeups) run(ctx context.Context, wake func(...client.ObjectKey)) {
	timer := a.clock.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		due, sleep := a.popDue()
		if len(due) > 0 {
			wake(due...)
		}
		a.noteSleep(sleep)
		timer.Reset(sleep)
		select {
		case <-timer.C():
		case <-a.changed:
		case <-ctx.Done():
			return
		}
		a.lastStall()
	}
}

// noteSleep records how long the timer is about to sleep at most.
func (a *wakeups) noteSleep(sleep time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakesBy = a.clock.Now().Add(sleep)
}

// lastStall returns when a stall was last detected: the process was stopped, the machine was
// suspended, or the clock was set forward. Zero means never. It does not rely on the timer, because
// after a resume a reconcile may run before the timer fires.
func (a *wakeups) lastStall() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.clock.Now(); !a.wakesBy.IsZero() && kube.Elapsed(a.wakesBy, now) > stallThreshold {
		a.stalledAt, a.wakesBy = now, now.Add(maxSleep)
	}
	return a.stalledAt
}

// popDue removes and returns the CronTabs that are due, and returns how long to sleep after that.
func (a *wakeups) popDue() (due []client.ObjectKey, sleep time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	for len(a.queue) > 0 {
		first := a.queue[0]
		if wait := first.at.Sub(now); wait > 0 {
			return due, min(wait, maxSleep)
		}
		heap.Pop(&a.queue)
		delete(a.entries, first.key)
		due = append(due, first.key)
	}
	return due, maxSleep
}

// wakeupHeap is a min-heap by time.
type wakeupHeap []*wakeup

// Len implements heap.Interface.
func (q wakeupHeap) Len() int { return len(q) }

// Less implements heap.Interface.
func (q wakeupHeap) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

// Swap implements heap.Interface.
func (q wakeupHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *wakeupHeap) Push(x any) {
	e := x.(*wakeup)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *wakeupHeap) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
