// Package apiproxy is a proxy between a manager and the API server in tests. It records every
// request, and injects the faults of a network, a busy API server and its database.
package apiproxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Faults are the faults that a Proxy injects. The zero value has none.
type Faults struct {
	// Latency is added to each request.
	Latency time.Duration
	// Share is the fraction of requests that fail: with 409 for writes to existing objects, with
	// 429, 500 or 504, or without a response. Those with 504, and half of those without a response,
	// take effect all the same.
	Share float64
	// Hang is the duration of a request without a response.
	Hang time.Duration
	// NoBookmarks drops the bookmarks of watches.
	NoBookmarks bool
	// Expired is the fraction of watches that fail with 410, because their version is too old.
	Expired float64
	// WatchFor ends each watch silently after that time; zero never does.
	WatchFor time.Duration
}

// Request is a completed request.
type Request struct {
	// At is the time of the response.
	At time.Time
	// Method and Path are those of HTTP; Watch marks a watch.
	Method, Path string
	Watch        bool
	// Name is the name of the created object, which is not in the path.
	Name string
	// Took is the time until the response, or until the client gave up.
	Took time.Duration
	// Code is the status of the response; 0 if there was none.
	Code int
	// Injected means that the response is not from the API server, or that the client did not get
	// it.
	Injected bool
}

// IsWrite reports whether a successful request changes something.
func (r Request) IsWrite() bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// Proxy serves an API without authentication on its own port.
type Proxy struct {
	// URL is the address of the proxy.
	URL string

	forward *httputil.ReverseProxy

	mu       sync.Mutex
	random   *rand.Rand
	faults   Faults
	cut      bool
	stalled  chan struct{} // closed at the end of the stall; nil if there is none
	requests []Request
	// watches cancel the open watches.
	watches map[*http.Request]context.CancelFunc
}

// New starts a Proxy with the identity of the config. It stops at the end of the test.
func New(t testing.TB, config *rest.Config, seed uint64) *Proxy {
	t.Helper()
	p := &Proxy{forward: Forward(t, config), random: rand.New(rand.NewPCG(seed, 1)), watches: map[*http.Request]context.CancelFunc{}}
	p.URL = Serve(t, p)
	t.Cleanup(func() { p.Stall(false) }) // otherwise the server would wait for stalled requests
	return p
}

// Kubeconfig writes a kubeconfig for the proxy and returns its path.
func (p *Proxy) Kubeconfig(t testing.TB) string {
	t.Helper()
	return Kubeconfig(t, p.URL)
}

// Set sets the faults from now on. It ends all watches, so that the next ones are affected.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	for _, end := range p.watches {
		end()
	}
}

// Cut drops all new requests, or lets them through again. Active requests continue, including
// watches.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// Stall silently blocks everything: requests get no response, and open watches receive nothing. At
// its end, everything that was blocked fails: requests have not arrived, and the rest of responses
// is lost.
func (p *Proxy) Stall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stall && p.stalled == nil:
		p.stalled = make(chan struct{})
	case !stall && p.stalled != nil:
		close(p.stalled)
		p.stalled = nil
	}
}

// passes returns true immediately, or during a stall false when it ends or the client is gone.
func (p *Proxy) passes(r *http.Request) bool {
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled == nil {
		return true
	}
	select {
	case <-stalled:
	case <-r.Context().Done():
	}
	return false
}

// Requests returns all requests so far, in the order of their responses.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[:len(p.requests):len(p.requests)]
}

// fault is the fault injected into a request.
type fault string

const (
	none     fault = ""
	dropped  fault = "dropped"
	conflict fault = "conflict"
	busy     fault = "busy"
	broken   fault = "broken"
	lost     fault = "lost"    // never arrives
	unheard  fault = "unheard" // arrives, but the response is lost
	late     fault = "late"    // arrives, and takes effect after the API server has given up
	expired  fault = "too old" // for watches
)

// decide selects the fault of a request.
func (p *Proxy) decide(r *http.Request, watch bool) (fault, Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults
	switch {
	case p.cut:
		return dropped, f
	case watch && r.URL.Query().Get("resourceVersion") != "" && p.random.Float64() < f.Expired:
		return expired, f
	case p.random.Float64() < f.Share:
		kinds := []fault{busy, broken, late, lost, unheard}
		if r.Method == http.MethodPut || r.Method == http.MethodPatch {
			kinds = append(kinds, conflict)
		}
		return kinds[p.random.IntN(len(kinds))], f
	}
	return none, f
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, watch := time.Now(), r.URL.Query().Has("watch")
	what, f := p.decide(r, watch)
	name := nameOf(r)
	answer := &recorder{ResponseWriter: w, passes: func() bool { return p.passes(r) }}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if answer.at.IsZero() {
			answer.at = time.Now()
		}
		p.requests = append(p.requests, Request{
			At: answer.at, Method: r.Method, Path: r.URL.Path, Watch: watch, Name: name, Took: time.Since(began), Code: answer.code,
			Injected: what != none,
		})
	}()
	if !answer.passes() {
		what = dropped
	}
	if what != dropped && f.Latency > 0 {
		wait(r, f.Latency)
	}
	if query := r.URL.Query(); watch && f.NoBookmarks {
		query.Del("allowWatchBookmarks")
		r.URL.RawQuery = query.Encode()
	}
	switch what {
	case none:
		if watch {
			p.watch(answer, r, f)
			return
		}
		p.forward.ServeHTTP(answer, r)
	case dropped:
		panic(http.ErrAbortHandler)
	case lost, unheard:
		if what == unheard && !watch {
			p.forward.ServeHTTP(&Deaf{}, r)
		}
		_, _ = io.Copy(io.Discard, r.Body) // without this, the server does not notice that the client has given up
		wait(r, f.Hang)
		panic(http.ErrAbortHandler)
	case late:
		if !watch {
			p.forward.ServeHTTP(&Deaf{}, r)
		}
		refuse(answer, what)
	default:
		refuse(answer, what)
	}
}

// watch forwards a watch and ends it after the limit, if there is one.
func (p *Proxy) watch(w http.ResponseWriter, r *http.Request, f Faults) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if f.WatchFor > 0 {
		defer time.AfterFunc(f.WatchFor, cancel).Stop()
	}
	p.mu.Lock()
	p.watches[r] = cancel
	if p.faults != f { // Set was called before the watch was registered
		cancel()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, r)
	}()
	p.forward.ServeHTTP(w, r.WithContext(ctx))
}

func wait(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// refuse responds like an API server.
func refuse(w http.ResponseWriter, what fault) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Message: "failed on purpose: " + string(what),
	}
	switch what {
	case conflict:
		status.Code, status.Reason = http.StatusConflict, metav1.StatusReasonConflict
	case busy:
		status.Code, status.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
		w.Header().Set("Retry-After", "1")
	case expired:
		status.Code, status.Reason = http.StatusGone, metav1.StatusReasonExpired
	case late:
		status.Code, status.Reason = http.StatusGatewayTimeout, metav1.StatusReasonTimeout
	default:
		status.Code, status.Reason = http.StatusInternalServerError, metav1.StatusReasonInternalError
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // it has only text and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // the client may be gone
}

// recorder records the status and the time of a response.
type recorder struct {
	http.ResponseWriter
	code int
	at   time.Time
	// passes reports whether the rest of the response goes through.
	passes func() bool
}

var errStalled = errors.New("the response was stalled")

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	r.code, r.at = code, time.Now()
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	if r.code == 0 {
		r.code, r.at = http.StatusOK, time.Now()
	}
	if !r.passes() {
		return 0, errStalled
	}
	return r.ResponseWriter.Write(data)
}

// Unwrap gives http access to the optional interfaces of the inner writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
