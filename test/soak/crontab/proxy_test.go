//go:build soak

package crontab

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
)

// proxy stands between managers and the API and fails writes: before the API sees them, or after it has done them. Who
// sends cannot tell which it was.
type proxy struct {
	forward *httputil.ReverseProxy
	// odds are the parts of writes to fail, by what they write, as in write.what.
	odds map[string]float64

	mu     sync.Mutex
	random *rand.Rand
	closed bool
	faults []fault
}

// fault is a write that was failed.
type fault struct {
	write write
	at    time.Time
	// done says that the API has done it all the same.
	done bool
}

// write is what a request changes.
type write struct {
	// what is a verb and a resource, such as "PUT crontabs/status".
	what string
	// name is that of the object, of one that is created only if it is a Job.
	name string
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	drop, done, fail := p.decide(r)
	switch {
	case drop:
		panic(http.ErrAbortHandler)
	case !fail:
		p.forward.ServeHTTP(w, r)
		return
	case done:
		p.forward.ServeHTTP(&apiproxy.Deaf{}, r)
	}
	if p.flip() {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"failed on purpose"}`,
		http.StatusInternalServerError)
}

// decide says what happens to a request: whether it is dropped because the proxy is closed, or else fails, and whether
// the API does it before it fails.
func (p *proxy) decide(r *http.Request) (drop, done, fail bool) {
	w := writeOf(r)
	if w.what != "" && w.name == "" {
		w.name = nameIn(r) // before the lock: a manager may be stopped in the middle of a request
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return true, false, false
	}
	if p.random.Float64() >= p.odds[w.what] {
		return false, false, false
	}
	done = p.random.IntN(2) == 0
	p.faults = append(p.faults, fault{write: w, at: time.Now(), done: done})
	return false, done, true
}

func (p *proxy) flip() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(2) == 0
}

// close drops all requests from now on, open forwards them again. Those that are on their way go on.
func (p *proxy) close() { p.set(true) }
func (p *proxy) open()  { p.set(false) }

func (p *proxy) set(closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = closed
}

// quieten lets everything through from now on.
func (p *proxy) quieten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.odds = nil
}

// took returns the faults until now.
func (p *proxy) took() []fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// writeOf returns what a request writes; reads give nothing.
func writeOf(r *http.Request) write {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return write{}
	}
	// .../namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
	_, path, found := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/")
	if !found || len(parts) < 2 {
		return write{}
	}
	w := write{what: r.Method + " " + parts[1]}
	if len(parts) > 2 {
		w.name = parts[2]
	}
	if len(parts) > 3 {
		w.what += "/" + parts[3]
	}
	return w
}

// jobNames are the names of Jobs of CronTabs, in JSON or protobuf.
var jobNames = regexp.MustCompile(`soak-\d+-\d{9,11}`)

// nameIn returns the name of the Job in the body of a request, which stays readable.
func nameIn(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return ""
	}
	return string(jobNames.Find(body))
}

func TestSoakProxyKnowsWrites(t *testing.T) {
	for _, tc := range []struct {
		method, path string
		want         write
	}{
		{"PUT", "/apis/stable.example.com/v1/namespaces/ns/crontabs/ct/status", write{"PUT crontabs/status", "ct"}},
		{"POST", "/apis/batch/v1/namespaces/ns/jobs", write{"POST jobs", ""}},
		{"DELETE", "/apis/batch/v1/namespaces/ns/jobs/ct-1", write{"DELETE jobs", "ct-1"}},
		{"GET", "/apis/batch/v1/namespaces/ns/jobs/ct-1", write{}},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", write{}},
	} {
		r, err := http.NewRequest(tc.method, "http://api"+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := writeOf(r); got != tc.want {
			t.Errorf("%s %s gives %+v, want %+v", tc.method, tc.path, got, tc.want)
		}
	}
}

// summary says how many writes failed, of which kind.
func (p *proxy) summary() string {
	count := map[string]int{}
	for _, f := range p.took() {
		key := f.write.what + " refused"
		if f.done {
			key = f.write.what + " done and not answered"
		}
		count[key]++
	}
	return fmt.Sprintf("failed writes: %v", count)
}
