package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// agentTimeout is the response timeout of a guest agent.
	agentTimeout = 5 * time.Second
	// maxAgentFailures is the number of consecutive failures after which the guest is no longer ready.
	maxAgentFailures = 3
	// firstAgentPause is the interval of the first queries, lastAgentPause that of later ones.
	firstAgentPause, lastAgentPause = 50 * time.Millisecond, 10 * time.Second
	// maxWait limits how long a probe waits.
	maxWait = 10 * time.Second
)

// readiness is whether the guest is ready.
type readiness struct {
	mu    sync.Mutex
	ready bool
	// guest is what the manager learns. It is not ready while it is halted.
	guest   Guest
	changed chan struct{}
}

func newReadiness() *readiness { return &readiness{changed: make(chan struct{})} }

func (r *readiness) set(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready != ready {
		r.ready = ready
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// halt sets why the guest does not run, and reports whether that is news.
func (r *readiness) halt(why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guest.Halted == why {
		return false
	}
	r.guest.Halted = why
	close(r.changed)
	r.changed = make(chan struct{})
	return true
}

func (r *readiness) get() (ready bool, halted string, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready && r.guest.Halted == "", r.guest.Halted, r.changed
}

// setSilence sets how the guest was silent; nil if it was not.
func (r *readiness) setSilence(silence *Silence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guest.Silence = silence
}

// setMinimumMemory sets the memory that the guest needs to boot.
func (r *readiness) setMinimumMemory(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guest.MinimumMemory = bytes
}

// tell returns what the manager learns of the guest.
func (r *readiness) tell() Guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guest
}

// serveGuest tells it the manager.
func (r *readiness) serveGuest(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(r.tell()) // the manager may be gone
}

// ServeHTTP answers a probe. A positive answer comes at once, a negative one after the time to wait, so that kubelet learns of the
// guest's agent at once and not at its next probe.
func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	wait, err := time.ParseDuration(request.URL.Query().Get("wait"))
	if err != nil {
		wait = 0
	}
	timer := time.NewTimer(min(wait, maxWait))
	defer timer.Stop()
	for {
		ready, halted, changed := r.get()
		if ready {
			_, _ = w.Write([]byte("ok\n")) // kubelet may be gone
			return
		}
		select {
		case <-changed:
			continue
		case <-timer.C:
		case <-request.Context().Done():
		}
		http.Error(w, cmp.Or(halted, "the guest agent has not answered"), http.StatusServiceUnavailable)
		return
	}
}

// agentOpened and agentClosed follow the agent while the guest has its channel open.
func (l *launcher) agentOpened() {
	if l.stopAgent == nil {
		var ctx context.Context
		ctx, l.stopAgent = context.WithCancel(context.Background())
		l.agent.Go(func() { l.followAgent(ctx) })
	}
}

func (l *launcher) agentClosed() {
	if l.stopAgent != nil {
		l.stopAgent()
		l.stopAgent = nil
		l.agent.Wait()
		l.ready.set(false)
	}
}

// followAgent queries the guest agent while the guest has its channel open.
func (l *launcher) followAgent(ctx context.Context) {
	defer l.closeAgent()
	for failures := 0; ctx.Err() == nil; {
		err := l.queryAgent(ctx)
		pause := lastAgentPause
		if err == nil {
			failures = 0
			l.ready.set(true)
		} else {
			l.closeAgent()
			pause = firstAgentPause
			if failures++; failures >= maxAgentFailures && ctx.Err() == nil {
				l.ready.set(false)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// closeAgent closes the connection to the agent.
func (l *launcher) closeAgent() {
	if conn := l.agentConn.Swap(nil); conn != nil {
		conn.Close()
	}
}

// queryAgent checks that the agent answers, when it is not busy with a snapshot.
func (l *launcher) queryAgent(ctx context.Context) error {
	select {
	case l.agentTurn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.agentTurn }()
	calling, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	conn := l.agentConn.Load()
	if conn == nil {
		var err error
		if conn, err = qmp.DialAgent(calling, filepath.Join(l.dirs.Run, qemu.AgentSocket)); err != nil {
			return err
		}
		l.agentConn.Store(conn)
	}
	if l.mayBeFrozen.Load() {
		if _, err := diskbackup.Thaw(calling, conn); err != nil {
			return err
		}
		l.mayBeFrozen.Store(false)
	}
	if err := conn.Run(calling, "guest-ping", nil, nil); err != nil {
		return err
	}
	if err := l.setClock(calling, conn); err != nil {
		return err
	}
	return l.renameGuest(ctx, conn)
}
