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

// responseTimeout is how long a request waits for the headers of its response. kube-apiserver ends requests other than watches
// after a minute. If a response takes longer, something between hangs, and would block a worker forever.
const responseTimeout = 70 * time.Second

// errNoResponse is the error of such a request.
var errNoResponse = fmt.Errorf("no response within %v: the API server hangs, or a proxy in front of it", responseTimeout)

// withResponseTimeout returns inner with the timeout. That of a rest.Config would also end watches and long lists.
func withResponseTimeout(inner http.RoundTripper) http.RoundTripper { return timeoutTransport{inner} }

type timeoutTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t timeoutTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	timer := time.AfterFunc(timeoutOf(request), func() { cancel(errNoResponse) })
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoResponse) {
			err = errNoResponse
		}
		cancel(nil)
		return nil, err
	}
	response.Body = &responseBody{response.Body, cancel}
	return response, nil
}

// timeoutOf returns the timeout of a request. That of a watch includes the time the watch lasts: a proxy may hold back the headers
// until there is an event.
func timeoutOf(request *http.Request) time.Duration {
	query := request.URL.Query()
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && query.Has("watch") {
		return responseTimeout + time.Duration(seconds)*time.Second
	}
	return responseTimeout
}

// WrappedRoundTripper lets client-go unwrap the transport.
func (t timeoutTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// responseBody cancels the context when it is closed.
type responseBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
