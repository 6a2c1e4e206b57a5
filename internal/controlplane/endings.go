package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// attempts is the number of times that a component may end before a wait for the control plane fails.
const attempts = 3

// endings cancels waits for the control plane if any component keeps exiting. It need not be the awaited one: a damaged etcd
// opens its socket before it exits.
type endings struct {
	mu      sync.Mutex
	waiting map[*waiter]bool
}

type waiter struct {
	ends   map[string]int // since this wait began, by component
	cancel context.CancelCauseFunc
}

// watch returns a context that is cancelled, with the reason as its cause, when a component has ended too often from
// now on. The caller calls done at the end of the wait.
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

// note records for all waits why a component has ended or could not be started.
func (e *endings) note(component string, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waiting {
		if w.ends[component]++; w.ends[component] == attempts {
			w.cancel(fmt.Errorf("%s has failed %d times: %w", component, attempts, why))
		}
	}
}

// await calls ready at each interval until it returns nil. After the timeout or the end of the context, the error
// includes the last error of ready.
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
		if ctx.Err() == nil { // otherwise the error may only be the interruption
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
