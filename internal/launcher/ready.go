package launcher

import (
	"cmp"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/owner"
)

// maxWait limits how long a probe waits.
const maxWait = 10 * time.Second

// readiness is whether the guest is ready.
type readiness struct {
	mu    sync.Mutex
	ready bool
	// guest is what the manager learns.
	guest   Guest
	changed chan struct{}
}

func newReadiness() *readiness { return &readiness{changed: make(chan struct{})} }

// set sets whether the guest is ready, why it does not run, and how it was silent; it reports whether the second is news.
func (r *readiness) set(ready bool, halted string, silence *owner.Silence) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news = r.guest.Halted != halted
	if news || r.ready != ready {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.ready, r.guest.Halted, r.guest.Silence = ready, halted, silence
	return news
}

func (r *readiness) get() (ready bool, halted string, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready && r.guest.Halted == "", r.guest.Halted, r.changed
}

// setMinimumMemory sets the memory that the guest needs to boot.
func (r *readiness) setMinimumMemory(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guest.MinimumMemory = bytes
}

// setProgress sets how far the import of the image is; empty means that there is nothing to tell.
func (r *readiness) setProgress(progress string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guest.Progress = progress
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
