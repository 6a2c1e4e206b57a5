package network

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	// wakeTimeout is how long a connection to a machine that is asleep waits.
	wakeTimeout = 2 * time.Minute
	// wakeLook is the interval of looks whether it is awake.
	wakeLook = 5 * time.Millisecond
	// retainLen is the number of frames that wait for a machine that is about to wake: the first ones of a few connections.
	retainLen = 32
)

// Wanted are the machines that are asleep and that someone wants to reach.
type Wanted struct {
	// Number changes when there is another one.
	Number uint64 `json:"number"`
	// UIDs are those of the machines.
	UIDs []string `json:"uids"`
}

// Wanted returns the machines that are asleep and that someone wants to reach, as soon as the number is not after; 0 means at once.
// The caller bounds the wait.
func (c *Client) Wanted(ctx context.Context, after uint64) (Wanted, error) {
	var wanted Wanted
	query := url.Values{"after": {strconv.FormatUint(after, 10)}}
	err := requestSwitch(ctx, c.socket, http.MethodGet, "/wanted?"+query.Encode(), nil, &wanted)
	return wanted, err
}

// wants counts how often someone has wanted to reach a machine that is asleep. It begins with another number in each process, so that
// the manager notices a new one.
type wants struct {
	mu      sync.Mutex
	number  uint64
	changed chan struct{} // closed when number changes
}

func newWants(start time.Time) *wants {
	return &wants{number: uint64(start.UnixNano()), changed: make(chan struct{})} //nolint:gosec // after 1970
}

func (w *wants) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	close(w.changed)
	w.changed = make(chan struct{})
}

// await returns the number as soon as it is not after, or when the context ends.
func (w *wants) await(ctx context.Context, after uint64) uint64 {
	for {
		w.mu.Lock()
		number, changed := w.number, w.changed
		w.mu.Unlock()
		if number != after {
			return number
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return number
		}
	}
}

// wanted answers as soon as there is something new.
func (c *control) wanted(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := Wanted{Number: c.s.wants.await(r.Context(), after)}
	for _, p := range c.s.table.Load().ports {
		if p.wanted.Load() && p.isAsleep() {
			answer.UIDs = append(answer.UIDs, p.uid)
		}
	}
	writeJSON(w, answer)
}

// isAsleep reports whether the machine is asleep, and wakes when someone wants to reach it.
func (p *port) isAsleep() bool { return !p.connected.Load() && p.machine.Load().Asleep }

// wake tells the manager that someone wants to reach a machine, if it is asleep.
func (s *netswitch) wake(p *port) {
	if p.isAsleep() && !p.wanted.Swap(true) {
		p.redialSoon()
		s.wants.add()
	}
}

// retain reports whether the queue keeps one more frame for a machine that is about to wake.
func (p *port) retain() bool {
	if !p.wanted.Load() || len(p.queue) >= retainLen {
		return false
	}
	p.retains.Store(true)
	return true
}

// awaitAwake wakes a machine that is asleep, and returns when it is awake.
func (s *netswitch) awaitAwake(ctx context.Context, p *port) error {
	for p.isAsleep() {
		s.wake(p)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wakeLook):
		}
	}
	return nil
}
