package local

import (
	"context"
	"sync"
	"time"
)

// yieldPatience is how long the controllers of a cluster wait for the APIs of other clusters.
const yieldPatience = 5 * time.Second

// turns decides who has the processors first when several clusters are started at once: their APIs, because somebody waits
// for those, before the controllers of any of them.
type turns struct {
	mu       sync.Mutex
	starting int           // APIs that are not ready yet
	over     chan struct{} // closed when there is none any more; nil without any
}

// begin says that an API starts. The function that it returns says that this is over.
func (t *turns) begin() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.starting++; t.over == nil {
		t.over = make(chan struct{})
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.starting--; t.starting == 0 {
			close(t.over)
			t.over = nil
		}
	}
}

// yield waits until no API is starting, for yieldPatience at most.
func (t *turns) yield(ctx context.Context) {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, yieldPatience)
	defer cancel()
	select {
	case <-over:
	case <-ctx.Done():
	}
}
