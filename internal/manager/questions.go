package manager

import "net/http"

// API servers bring no credentials to a webhook, so that whoever reaches it can ask. What that costs a manager is bounded, far
// below what an API server asks for that works; one that gets no answer in time goes on without.
const (
	// questionsAtOnce is how many requests of API servers are worked on at a time. Each may try a Job.
	questionsAtOnce = 16
	// questionSize is how large a request may be, in bytes: it has an object and the one before, of at most 1.5 MiB each in etcd.
	questionSize = 4 << 20
	// connectionsAtOnce is how many connections there may be. An API server needs one.
	connectionsAtOnce = 64
)

// bounded returns a handler that has next answer so many requests at a time. The others wait until they are given up; of their
// bodies nothing is read before.
func bounded(next http.Handler) http.Handler {
	places := make(chan struct{}, questionsAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			r.Body = http.MaxBytesReader(w, r.Body, questionSize)
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}
