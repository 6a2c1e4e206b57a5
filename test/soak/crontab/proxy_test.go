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

// proxy is a proxy between managers and the API. It fails writes either before the API gets them or
// after they took effect; the client cannot tell which.
type proxy struct {
	forward *httputil.ReverseProxy
	// odds are the fractions of writes to fail, by write.what.
	odds map[string]float64

	mu     sync.Mutex
	random *rand.Rand
	closed bool
	faults []fault
}

// fault is a failed write.
type fault struct {
	write write
	at    time.Time
	// done means that the write took effect all the same.
	done bool
}

// write is a modifying request.
type write struct {
	// what is the verb and the resource, such as "PUT crontabs/status".
	what string
	// name is the name of the object; for creates, only of a Job.
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

// decide selects the fate of a request: drop it because the proxy is closed, or fail it, before or
// after it takes effect.
func (p *proxy) decide(r *http.Request) (drop, done, fail bool) {
	w := writeOf(r)
	if w.what != "" && w.name == "" {
		w.name = nameIn(r) // before the lock: a manager may be suspended during a request
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

// close drops all new requests; open forwards them again. Active requests continue.
func (p *proxy) close() { p.set(true) }
func (p *proxy) open()  { p.set(false) }

func (p *proxy) set(closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = closed
}

// quieten injects no more faults.
func (p *proxy) quieten() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.odds = nil
}

// took returns the faults so far.
func (p *proxy) took() []fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// writeOf returns the write of a request; it is empty for reads.
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

// jobNames matches the names of the Jobs of CronTabs, in JSON or protobuf.
var jobNames = regexp.MustCompile(`soak-\d+-\d{9,11}`)

// nameIn returns the name of the Job in the body of a request. The body can still be read.
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

// summary counts the failed writes by kind.
func (p *proxy) summary() string {
	count := map[string]int{}
	for _, f := range p.took() {
		key := f.write.what + " refused"
		if f.done {
			key = f.write.what + " done without a response"
		}
		count[key]++
	}
	return fmt.Sprintf("failed writes: %v", count)
}
