package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// attempts is how often a component may end during a wait for the control plane, before the wait fails.
const attempts = 3

// endings ends waits for the control plane when one of its components keeps exiting, which may be another one than the wait is
// for. A damaged etcd opens its socket before it notices.
type endings struct {
	mu      sync.Mutex
	waiting map[*waiter]bool
}

type waiter struct {
	ends   map[string]int // since this wait began, by component
	cancel context.CancelCauseFunc
}

// watch returns a context that is cancelled, with the reason as its cause, when a component has ended too often from
// now on. The wait is over when done is called.
func (e *endings) watch(ctx context.Context) (watched context.Context, done func()) {
	watched, cancel := context.WithCancelCause(ctx)
	w := &waiter{ends: map[string]int{}, cancel: cancel}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = map[*waiter]bool{}
	}
	e.waiting[w] = true
	return watched, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, w)
		cancel(nil)
	}
}

// note records for all waits that a component has ended or could not be started, and why.
func (e *endings) note(component string, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waiting {
		if w.ends[component]++; w.ends[component] == attempts {
			w.cancel(fmt.Errorf("%s was started %d times in vain: %w", component, attempts, why))
		}
	}
}

// await asks every interval until ready returns no error. When the context ends or the timeout is over, the error
// says why, and what the last answer was.
func await(ctx context.Context, what string, interval, timeout time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("waited %s", timeout))
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var answer error
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // else it may only say that it was interrupted
			answer = err
		}
		select {
		case <-ctx.Done():
			if answer == nil {
				return fmt.Errorf("%s is not ready: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("%s is not ready (%w): %w", what, answer, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
