package manager

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

// API servers bring no credentials to a webhook, so that whoever reaches it can ask. What that costs a manager is bounded, and so
// is what anybody can hold of it: all of it is shared by address, and nobody may keep a manager waiting for longer than hold.
//
// A connection has one question. A server that keeps connections must close idle ones some day; an API server that asks on one
// at that moment has no answer, and does not ask again. One more TLS handshake takes about a millisecond.
const (
	// questionsAtOnce is how many requests of API servers are worked on at a time, and half of them for one address. Each may
	// try a Job.
	questionsAtOnce = 16
	// questionSize is how large a request may be, in bytes: it has an object and the one before, of at most 1.5 MiB each in etcd.
	questionSize = 4 << 20
	// connectionsAtOnce is how many connections there may be, connectionsEach for one address, and connectionsInWait how many
	// more are accepted, of which nothing is read yet.
	connectionsAtOnce, connectionsEach, connectionsInWait = 128, 16, 1024
	// hold is how long a client may take for each of the handshake, the header and the body.
	hold = time.Second
	// turnWithin is how long a question waits until it is its turn: no longer than an API server does.
	turnWithin = 2 * time.Second
)

// newWebhookServer returns the server of the webhook. What is wrong with a connection is for who looks closely: anybody can cause it.
func newWebhookServer(handler http.Handler, log logr.Logger) *http.Server {
	server := &http.Server{
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(log.V(1)), slog.LevelInfo),
		Handler:           bounded(handler),
		ReadHeaderTimeout: hold, // also of the handshake
		ReadTimeout:       hold + turnWithin + hold,
		WriteTimeout:      turnWithin + 3*hold, // the wait, the body, the answer, and that it is read
		MaxHeaderBytes:    1 << 16,
	}
	server.SetKeepAlivesEnabled(false)
	return server
}

// bounded returns a handler that has next answer so many requests at a time. The others wait until they are given up; of their
// bodies nothing is read before.
func bounded(next http.Handler) http.Handler {
	places := newShares(questionsAtOnce, questionsAtOnce/2, connectionsAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := netip.ParseAddrPort(r.RemoteAddr) // without one, it shares with those who have none
		ctx, cancel := context.WithTimeout(r.Context(), turnWithin)
		defer cancel()
		release, ok := places.take(ctx, from.Addr())
		if !ok {
			http.Error(w, "too many questions at a time", http.StatusServiceUnavailable)
			return
		}
		defer release()
		r.Body = http.MaxBytesReader(w, newPromptBody(w, r.Body), questionSize)
		a := &keptAnswer{header: w.Header(), code: http.StatusOK}
		next.ServeHTTP(a, r)
		release() // who does not read the answer keeps nobody else from one
		w.WriteHeader(a.code)
		_, _ = w.Write(a.body.Bytes()) // who asked is gone
	})
}

// promptBody is the body of a question, which has to come promptly.
type promptBody struct {
	io.ReadCloser
	connection *http.ResponseController
}

func newPromptBody(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	b := promptBody{body, http.NewResponseController(w)}
	b.deadline(time.Now().Add(hold))
	return b
}

// Read implements io.Reader.
func (b promptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.deadline(time.Time{}) // the server goes on reading, to notice when the client is gone
	}
	return n, err
}

func (b promptBody) deadline(at time.Time) {
	_ = b.connection.SetReadDeadline(at) // the one of the server holds where there is no other
}

// keptAnswer is a response that is kept until it is complete.
type keptAnswer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *keptAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *keptAnswer) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (a *keptAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }

// sharedListener is a listener whose connections are shared by address.
type sharedListener struct {
	net.Listener
	places *shares
	// ready has connections that have a place, and failed errors of accepting.
	ready  chan net.Conn
	failed chan error
	begin  func()
	// open is done when the listener is closed.
	open  context.Context
	close context.CancelFunc
}

// share returns a listener that accepts what inner does, and hands over only connections that have a place.
func share(inner net.Listener) net.Listener {
	l := &sharedListener{
		Listener: inner, places: newShares(connectionsAtOnce, connectionsEach, connectionsInWait),
		ready: make(chan net.Conn), failed: make(chan error),
	}
	l.open, l.close = context.WithCancel(context.Background())
	l.begin = sync.OnceFunc(func() { go l.accept() })
	return l
}

// Accept implements net.Listener.
func (l *sharedListener) Accept() (net.Conn, error) {
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
func (l *sharedListener) Close() error {
	l.close()
	return l.Listener.Close()
}

func (l *sharedListener) accept() {
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

// admit hands a connection over when there is a place for it, and closes it if there is none in time.
func (l *sharedListener) admit(connection net.Conn) {
	from, _ := netip.ParseAddrPort(connection.RemoteAddr().String()) // without one, it shares with those who have none
	ctx, cancel := context.WithTimeout(l.open, turnWithin)
	defer cancel()
	release, ok := l.places.take(ctx, from.Addr())
	if !ok {
		_ = connection.Close() // nothing was said on it
		return
	}
	select {
	case l.ready <- &sharedConnection{connection, release}:
	case <-l.open.Done():
		release()
		_ = connection.Close() // nothing was said on it
	}
}

// sharedConnection gives its place back when it is closed.
type sharedConnection struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *sharedConnection) Close() error {
	defer c.release()
	return c.Conn.Close()
}
