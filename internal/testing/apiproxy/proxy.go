// Package apiproxy stands between a manager and the API server in tests: it notes every request, and fails what a test
// asks for, in the ways in which a network, a busy API server and its database do.
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

// Faults are what a Proxy does to requests. The zero value does nothing.
type Faults struct {
	// Latency is added to each request.
	Latency time.Duration
	// Share is the part of requests that fail: with 409 if they write what exists, with 429, with 500, with 504, or without
	// an answer. Those with 504, and half of those without an answer, are done all the same.
	Share float64
	// Hang is how long a request without an answer takes.
	Hang time.Duration
	// NoBookmarks keeps bookmarks from watches.
	NoBookmarks bool
	// Expired is the part of watches that are answered with 410, because their version is too old.
	Expired float64
	// WatchFor ends each watch after that time, without a word; zero never does.
	WatchFor time.Duration
}

// Request is a request that was answered.
type Request struct {
	// At is when it was answered.
	At time.Time
	// Method and Path are those of HTTP, Watch says that it is a watch.
	Method, Path string
	Watch        bool
	// Name is that of the object which it creates, that is not in the path.
	Name string
	// Took is how long it took until it was answered, or until who asked gave up.
	Took time.Duration
	// Code is the status of the answer; 0 if there was none.
	Code int
	// Injected says that it is not from the API server, or that nobody heard the answer of that.
	Injected bool
}

// IsWrite reports whether it changes something, if it succeeds.
func (r Request) IsWrite() bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// Proxy serves an API without a password on a port of its own.
type Proxy struct {
	// URL is where.
	URL string

	forward *httputil.ReverseProxy

	mu       sync.Mutex
	random   *rand.Rand
	faults   Faults
	cut      bool
	stalled  chan struct{} // closed when that is over; nil if nothing is stalled
	requests []Request
	// watches end those that are going on.
	watches map[*http.Request]context.CancelFunc
}

// New starts a Proxy that acts as who the config is. It is stopped when the test ends.
func New(t testing.TB, config *rest.Config, seed uint64) *Proxy {
	t.Helper()
	p := &Proxy{forward: Forward(t, config), random: rand.New(rand.NewPCG(seed, 1)), watches: map[*http.Request]context.CancelFunc{}}
	p.URL = Serve(t, p)
	t.Cleanup(func() { p.Stall(false) }) // else the server would wait for what waits
	return p
}

// Kubeconfig writes a kubeconfig that leads to the proxy, and returns its path.
func (p *Proxy) Kubeconfig(t testing.TB) string {
	t.Helper()
	return Kubeconfig(t, p.URL)
}

// Set sets the faults from now on. It ends all watches, so that the next ones meet them.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
	for _, end := range p.watches {
		end()
	}
}

// Cut drops everything from now on, or lets it through again. What is on its way goes on, watches too.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// Stall lets nothing through from now on, and says nothing: requests wait for an answer, and watches that go on tell nothing
// more. When that is over, what has waited breaks off: requests have not arrived, the rest of answers is lost.
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

// passes returns true at once, or, if everything is stalled, false when that is over or nobody waits any more.
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

// Requests returns all requests until now, in the order of their answers.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[:len(p.requests):len(p.requests)]
}

// fault is what happens to a request.
type fault string

const (
	none     fault = ""
	dropped  fault = "dropped"
	conflict fault = "conflict"
	busy     fault = "busy"
	broken   fault = "broken"
	lost     fault = "lost"    // never arrives
	unheard  fault = "unheard" // arrives, and the answer is lost
	late     fault = "late"    // arrives, and is done after the API server has given up
	expired  fault = "too old" // of a watch
)

// decide says what happens to a request.
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
		_, _ = io.Copy(io.Discard, r.Body) // before that nobody notices that who asked has given up
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

// watch forwards a watch, and ends it after a while if there is a limit.
func (p *Proxy) watch(w http.ResponseWriter, r *http.Request, f Faults) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if f.WatchFor > 0 {
		defer time.AfterFunc(f.WatchFor, cancel).Stop()
	}
	p.mu.Lock()
	p.watches[r] = cancel
	if p.faults != f { // Set has not met it
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

// refuse answers as an API server does.
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
		panic(err) // it is text and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // who asked may be gone
}

// recorder notes the status of an answer, and when it came.
type recorder struct {
	http.ResponseWriter
	code int
	at   time.Time
	// passes says whether more of the answer goes through.
	passes func() bool
}

var errStalled = errors.New("the answer was stalled for too long")

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

// Unwrap lets http find what else the inner one can.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
