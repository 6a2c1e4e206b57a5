package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// machine is the driver of one machine, web in the namespace default. Its console and its ports are pipes.
type machine struct {
	backend.Driver // of the methods that no test calls

	mu      sync.Mutex
	id      backend.Identity
	gone    bool
	off     bool
	state   backend.State // while it is off; stopped if it is empty
	guest   net.Conn      // the guest's side of the console
	log     string
	dialed  []uint16
	port    net.Conn // the guest's side of the port that was dialed last
	allowed bool
	usage   []backend.UsageSample
	tooMany bool
	tcp     bool     // ports are TCP connections, which can be half closed
	screen  net.Conn // the machine's side of the screen that was connected last

	waking chan struct{} // if it is asleep: closed when it is awake
	// attended are the calls of Attend, using those that were not released.
	attended, using int
}

func newMachine() *machine {
	return &machine{id: backend.Identity{UID: "1", Namespace: "default", Name: "web"}, allowed: true}
}

// set changes the machine.
func (m *machine) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *machine) Name() string { return "test" }

func (m *machine) Locate(_ context.Context, namespace, name string) (backend.Driver, backend.Identity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone || namespace != m.id.Namespace || name != m.id.Name {
		return nil, backend.Identity{}, apierrors.NewNotFound(schema.GroupResource{Resource: "virtualmachines"}, name)
	}
	return m, m.id, nil
}

func (m *machine) Observe(context.Context, backend.Identity) (backend.Server, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return backend.Server{State: cmp.Or(m.state, backend.StateStopped)}, nil
	}
	return backend.Server{State: backend.StateRunning}, nil
}

func (m *machine) Attend(ctx context.Context, _ backend.Identity) (func(), error) {
	m.mu.Lock()
	m.attended++
	m.using++
	waking := m.waking
	m.mu.Unlock()
	release := func() { m.set(func() { m.using-- }) }
	if waking == nil {
		return release, nil
	}
	select {
	case <-waking:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}

func (m *machine) Console(context.Context, backend.Identity) (io.ReadWriteCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return nil, backend.ErrUnavailable
	}
	ours, guest := net.Pipe()
	m.guest = guest
	return ours, nil
}

func (m *machine) ConsoleLog(ctx context.Context, _ backend.Identity, options backend.LogOptions) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := strings.NewReader(m.log)
	if !options.Follow {
		return io.NopCloser(log), nil
	}
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })
	go func() { _, _ = io.Copy(writer, log) }()
	return reader, nil
}

func (m *machine) Dial(_ context.Context, _ backend.Identity, port uint16) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dialed = append(m.dialed, port)
	if port != 22 {
		return nil, errors.New("connection refused")
	}
	if m.tcp {
		ours, guest, err := tcpPair()
		m.port = guest
		return ours, err
	}
	ours, guest := net.Pipe()
	m.port = guest
	return ours, nil
}

// tcpPair returns the two sides of a TCP connection.
func tcpPair() (ours, guest net.Conn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close() //nolint:errcheck // it was only used once
	if ours, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	guest, err = listener.Accept()
	return ours, guest, err
}

// console returns the guest's side of the console.
func (m *machine) console(t testing.TB) net.Conn {
	t.Helper()
	var guest net.Conn
	harness.Eventually(t, "the console is connected", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		guest = m.guest
		return guest != nil
	})
	return guest
}

func (m *machine) review(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if review.Spec.User == "" || review.Spec.ResourceAttributes.Verb != "get" || review.Spec.ResourceAttributes.Group != client.Group {
		return fmt.Errorf("a review of %+v", review.Spec)
	}
	review.Status.Allowed = m.allowed
	return nil
}

func (m *machine) Screen(context.Context, backend.Identity) (io.ReadWriteCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ours, theirs := net.Pipe()
	m.screen = theirs
	return ours, nil
}

func (m *machine) Screenshot(context.Context, backend.Identity) ([]byte, error) {
	return []byte("png"), nil
}

func (m *machine) samples(types.UID) ([]backend.UsageSample, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage, !m.tooMany
}

// fixture is a server with one machine.
type fixture struct {
	testing.TB
	m      *machine
	server *Server
	http   *httptest.Server
	front  *tls.Certificate // of the aggregator
	other  *tls.Certificate // of the same authority, for somebody else
	self   *tls.Certificate // of nobody
}

func newFixture(t testing.TB, limits Limits) *fixture {
	t.Helper()
	f := &fixture{TB: t, m: newMachine()}
	key, err := pki.NewKey()
	f.do(err)
	authority, err := pki.Template{CommonName: "front-proxy-ca", IsCA: true, Lifetime: time.Hour}.Issue(key, pki.Pair{}, time.Now())
	f.do(err)
	issue := func(name string, issuer pki.Pair) *tls.Certificate {
		pair, err := pki.Template{CommonName: name, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Lifetime: time.Hour}.Issue(key, issuer, time.Now())
		f.do(err)
		return pair.TLS()
	}
	f.front, f.other, f.self = issue("front-proxy-client", authority), issue("somebody", authority), issue("front-proxy-client", pki.Pair{})
	bundle, err := cert.EncodeCertificates(authority.Certificate)
	f.do(err)
	published := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ConfigMapNamespace, Name: ConfigMapName},
		Data: map[string]string{
			keyClientCA: string(bundle), keyNames: `["front-proxy-client"]`, keyUser: `["X-Remote-User"]`, keyGroup: `["X-Remote-Group"]`,
			keyExtra: `["X-Remote-Extra-"]`,
		},
	}
	f.server = NewServer(Options{
		Machines: f.m, Reader: fake.NewClientBuilder().WithObjects(published).Build(), Review: f.m.review, Usage: f.m.samples, Limits: limits, Log: logr.Discard(),
	})
	f.http = httptest.NewUnstartedServer(f.server)
	f.http.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"}} //nolint:gosec // of a test
	f.http.StartTLS()
	t.Cleanup(func() {
		f.server.Close()
		f.http.Close()
	})
	return f
}

// do fails the test if there is an error.
func (f *fixture) do(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// testLimits are those of most tests: nothing ends by itself.
func testLimits() Limits {
	l := DefaultLimits()
	l.Look, l.Stall, l.MaxLag = 5*time.Millisecond, 2*time.Second, time.Second // others use the processors, too
	return l
}

func (f *fixture) client(certificate *tls.Certificate) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of a test
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return &http.Client{Transport: transport}
}

// path returns the URL of a subresource of the machine.
func (f *fixture) path(rest string) string {
	return f.http.URL + "/apis/" + groupVersion + "/namespaces/default/virtualmachines/web/" + rest
}

func identity(name string) http.Header {
	return http.Header{"X-Remote-User": {name}, "X-Remote-Group": {"a", "b"}, "X-Remote-Extra-Scopes%2fx": {"1"}}
}

// get returns the code and the body of a request of the aggregator.
func (f *fixture) get(url string, certificate *tls.Certificate, header http.Header) (int, string) {
	f.Helper()
	code, body, err := f.request(url, certificate, header)
	f.do(err)
	return code, body
}

// request is like get, for other goroutines than the test's.
func (f *fixture) request(url string, certificate *tls.Certificate, header http.Header) (int, string, error) {
	request, err := http.NewRequestWithContext(f.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header = header
	c := f.client(certificate)
	c.Timeout = harness.WaitTimeout
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// statusOf reads a Status.
func statusOf(t testing.TB, body string) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || status.APIVersion != "v1" || status.Message == "" {
		t.Fatalf("not a Status: %q, %v", body, err)
	}
	return status
}

// open opens a WebSocket as the aggregator does.
func (f *fixture) open(rest string) *websocket.Conn {
	f.Helper()
	conn, _, err := websocket.Dial(f.Context(), f.path(rest), &websocket.DialOptions{HTTPClient: f.client(f.front), HTTPHeader: identity("jane")}) //nolint:bodyclose // it is the connection's
	f.do(err)
	conn.SetReadLimit(client.MaxMessage)
	f.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// notice reads a notice, after any output.
func (f *fixture) notice(conn *websocket.Conn) client.Notice {
	f.Helper()
	for {
		kind, raw, err := conn.Read(f.Context())
		f.do(err)
		if kind == websocket.MessageText {
			var notice client.Notice
			f.do(json.Unmarshal(raw, &notice))
			return notice
		}
	}
}

// output reads that much output, skipping notices.
func (f *fixture) output(conn *websocket.Conn, n int) string {
	f.Helper()
	var all []byte
	for len(all) < n {
		kind, raw, err := conn.Read(f.Context())
		f.do(err)
		if kind == websocket.MessageBinary {
			all = append(all, raw...)
		}
	}
	return string(all)
}

// closed reads until the end, and returns its status.
func (f *fixture) closed(conn *websocket.Conn) websocket.StatusCode {
	f.Helper()
	for {
		if _, _, err := conn.Read(f.Context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// settled waits until there are no more sessions, and not more goroutines than before.
func (f *fixture) settled(before int) {
	f.Helper()
	harness.Eventually(f, "all sessions have ended", func() bool {
		f.server.mu.Lock()
		defer f.server.mu.Unlock()
		return f.server.totals[client.Resource] == 0 && f.server.totals[client.Clusters] == 0 && len(f.server.sessions) == 0 && len(f.server.brokers) == 0
	})
	harness.Eventually(f, "no goroutine is left", func() bool {
		f.http.CloseClientConnections()
		return runtime.NumGoroutine() <= before
	})
}
