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
	// maxSleep is how long the alarm sleeps at most. A timer does not notice when
	// the clock is set, or when the machine was suspended.
	maxSleep = 5 * time.Second

	// stallThreshold is how late the alarm wakes when this process, or the machine, must have
	// stood still.
	stallThreshold = 3 * time.Second
)

// wakeups wakes CronTabs at their times. One timer serves all of them, and nothing happens
// in between.
type wakeups struct {
	clock clock.Clock

	mu      sync.Mutex
	entries map[client.ObjectKey]*wakeup
	queue   wakeupHeap
	changed chan struct{}
	// wakesBy is when the alarm wakes at the latest, and stalled when it last noticed that it was late.
	wakesBy, stalledAt time.Time
}

// wakeup is a CronTab, when it is to be woken, and its place in the queue.
type wakeup struct {
	key   client.ObjectKey
	at    time.Time
	index int
}

func newWakeups(clock clock.Clock) *wakeups {
	return &wakeups{clock: clock, entries: map[client.ObjectKey]*wakeup{}, changed: make(chan struct{}, 1)}
}

// set wakes a CronTab at a time, and no longer at one that was set before. The zero time
// is never.
func (a *wakeups) set(key client.ObjectKey, at time.Time) {
	// Schedules go by the wall clock. A time with a monotonic reading sorts differently once the machine was suspended.
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

// at returns when a CronTab is to be woken; zero if never.
func (a *wakeups) at(key client.ObjectKey) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, found := a.entries[key]; found {
		return e.at
	}
	return time.Time{}
}

// run calls wake with those whose time has come, until ctx is done. Their alarms are off
// then.
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

// noteSleep notes how long the alarm is about to sleep at most.
func (a *wakeups) noteSleep(sleep time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakesBy = a.clock.Now().Add(sleep)
}

// lastStall returns when it was last noticed that time had passed without the alarm: this process was stopped, the machine was
// suspended, or the clock was set forward. Zero is never. It does not rely on the timer of the alarm, which stands still with the
// machine: after a resume a reconcile can come first.
func (a *wakeups) lastStall() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.clock.Now(); !a.wakesBy.IsZero() && kube.Elapsed(a.wakesBy, now) > stallThreshold {
		a.stalledAt, a.wakesBy = now, now.Add(maxSleep)
	}
	return a.stalledAt
}

// popDue returns those whose time has come, and how long to sleep then.
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

// wakeupHeap is a heap of entries, the earliest first.
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
