package serving

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// API servers present no credentials to a webhook, so anybody who reaches it can send requests. Their cost is bounded, as is what one
// address can occupy: requests and connections have slots, which are shared by address, and each step of a request has a timeout.
//
// A connection has one request. A server that keeps connections must close idle ones at some point; an API server that sends a
// request at that moment gets no answer, and does not retry. One more TLS handshake takes about a millisecond.
const (
	// requestsAtOnce is how many requests are handled at a time, and half of that for one address. Each may cause a dry run of a Job.
	requestsAtOnce = 16
	// requestSize is the maximum size of a request in bytes: it has the old and the new object, of at most 1.5 MiB each in etcd.
	requestSize = 4 << 20
	// MaxConnections is how many connections are served at a time, connectionsEach for one address. connectionsInQueue more are
	// accepted, but not read yet.
	MaxConnections, connectionsEach, connectionsInQueue = 128, 16, 1024
	// stepTimeout is how long each of the handshake, the header and the body may take.
	stepTimeout = time.Second
	// QueueTimeout is how long a request or a connection waits for a slot: no longer than an API server waits for the answer.
	QueueTimeout = 2 * time.Second
)

// NewWebhookServer returns the server of the webhook. It logs errors of connections only at verbosity 1, because anybody can cause
// them.
func NewWebhookServer(handler http.Handler, log logr.Logger) *http.Server {
	server := &http.Server{
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(log.V(1)), slog.LevelInfo),
		Handler:           limitRequests(handler),
		ReadHeaderTimeout: stepTimeout, // also of the handshake
		ReadTimeout:       stepTimeout + QueueTimeout + stepTimeout,
		WriteTimeout:      QueueTimeout + 3*stepTimeout, // the wait, the body, the answer, and that it is read
		MaxHeaderBytes:    1 << 16,
	}
	server.SetKeepAlivesEnabled(false)
	return server
}

// limitRequests returns a handler that passes a limited number of requests to next at a time. The others wait for a slot; their bodies
// are not read before.
func limitRequests(next http.Handler) http.Handler {
	slots := newSlots(requestsAtOnce, requestsAtOnce/2, MaxConnections)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := netip.ParseAddrPort(r.RemoteAddr) // without an address, it shares the slots of those without
		ctx, cancel := context.WithTimeout(r.Context(), QueueTimeout)
		defer cancel()
		release, ok := slots.acquire(ctx, from.Addr())
		if !ok {
			http.Error(w, "too many requests", http.StatusServiceUnavailable)
			return
		}
		defer release()
		r.Body = http.MaxBytesReader(w, newDeadlineBody(w, r.Body), requestSize)
		a := &bufferedResponse{header: w.Header(), code: http.StatusOK}
		next.ServeHTTP(a, r)
		release() // a client that reads the answer slowly does not occupy the slot
		w.WriteHeader(a.code)
		_, _ = w.Write(a.body.Bytes()) // the client is gone
	})
}

// deadlineBody is the body of a request, which must arrive within stepTimeout.
type deadlineBody struct {
	io.ReadCloser
	connection *http.ResponseController
}

func newDeadlineBody(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	b := deadlineBody{body, http.NewResponseController(w)}
	b.deadline(time.Now().Add(stepTimeout))
	return b
}

// Read implements io.Reader.
func (b deadlineBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.deadline(time.Time{}) // the server continues to read, to notice when the client is gone
	}
	return n, err
}

func (b deadlineBody) deadline(at time.Time) {
	_ = b.connection.SetReadDeadline(at) // the one of the server holds where there is no other
}

// bufferedResponse holds a response until it is complete.
type bufferedResponse struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *bufferedResponse) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *bufferedResponse) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (a *bufferedResponse) Write(p []byte) (int, error) { return a.body.Write(p) }

// limitedListener is a listener with a limited number of connections, shared by address.
type limitedListener struct {
	net.Listener
	slots *slots
	// ready receives connections that have a slot, failed the errors of Accept.
	ready  chan net.Conn
	failed chan error
	begin  func()
	// open is done when the listener is closed.
	open  context.Context
	close context.CancelFunc
}

// LimitConnections returns a listener that accepts from inner, and returns connections when they have a slot.
func LimitConnections(inner net.Listener) net.Listener {
	l := &limitedListener{
		Listener: inner, slots: newSlots(MaxConnections, connectionsEach, connectionsInQueue),
		ready: make(chan net.Conn), failed: make(chan error),
	}
	l.open, l.close = context.WithCancel(context.Background())
	l.begin = sync.OnceFunc(func() { go l.accept() })
	return l
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	l.begin()
	select {
	case connection := <-l.ready:
		return connection, nil
	case err := <-l.failed:
		return nil, err
	case <-l.open.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.close()
	return l.Listener.Close()
}

func (l *limitedListener) accept() {
	for l.open.Err() == nil {
		connection, err := l.Listener.Accept()
		if err == nil {
			go l.admit(connection)
			continue
		}
		select {
		case l.failed <- err:
		case <-l.open.Done():
		}
	}
}

// admit passes the connection on when it has a slot, and closes it if it gets none in time.
func (l *limitedListener) admit(connection net.Conn) {
	from, _ := netip.ParseAddrPort(connection.RemoteAddr().String()) // without an address, it shares the slots of those without
	ctx, cancel := context.WithTimeout(l.open, QueueTimeout)
	defer cancel()
	release, ok := l.slots.acquire(ctx, from.Addr())
	if !ok {
		_ = connection.Close() // nothing was sent on it
		return
	}
	select {
	case l.ready <- &limitedConnection{connection, release}:
	case <-l.open.Done():
		release()
		_ = connection.Close() // nothing was sent on it
	}
}

// limitedConnection releases its slot when it is closed.
type limitedConnection struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *limitedConnection) Close() error {
	defer c.release()
	return c.Conn.Close()
}
