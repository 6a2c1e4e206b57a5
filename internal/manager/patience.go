package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// answerTimeout is how long a request waits for the beginning of its answer. kube-apiserver ends those that are no watches
// after a minute, so that who waits longer waits for nobody: something on the way hangs, and would hold a worker for ever.
const answerTimeout = 70 * time.Second

// errNoAnswer says that nothing came back from the API server in that time.
var errNoAnswer = fmt.Errorf("no answer has begun within %v: the API server hangs, or something on the way to it", answerTimeout)

// impatient returns inner, without waiting for ever. The timeout of a rest.Config would end watches, too, and long lists.
func impatient(inner http.RoundTripper) http.RoundTripper { return impatientTransport{inner} }

type impatientTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t impatientTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	timer := time.AfterFunc(patience(request), func() { cancel(errNoAnswer) })
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			err = errNoAnswer
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &answer{response.Body, cancel}
	return response, nil
}

// patience is how long a request waits for its answer to begin. A watch says how long it lasts: on the way may be a proxy
// that keeps the beginning of the answer until there is something to tell.
func patience(request *http.Request) time.Duration {
	query := request.URL.Query()
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && query.Has("watch") {
		return answerTimeout + time.Duration(seconds)*time.Second
	}
	return answerTimeout
}

// WrappedRoundTripper lets client-go find what it looks for in the transport.
func (t impatientTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// answer gives the context up when it has been read.
type answer struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (a *answer) Close() error {
	defer a.cancel(nil)
	return a.ReadCloser.Close()
}
