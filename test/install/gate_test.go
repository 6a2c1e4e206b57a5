package install

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// gate is a proxy between a manager and the API server. It can hold back watch events, to keep the
// manager's caches outdated.
type gate struct {
	cluster *clientcmdapi.Cluster // address of the gate

	mu     sync.Mutex
	held   []string      // resources whose watches are held back
	opened chan struct{} // closed when watches continue
}

// newGate returns an open gate for the API server of w. Clients bring their own credentials.
func (w *world) newGate(t *testing.T) *gate {
	t.Helper()
	target, err := url.Parse(w.admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(w.admin)
	transport, err := rest.TransportFor(anonymous)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // events immediately
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Query().Get("watch") != "" {
				response.Body = &watched{ReadCloser: response.Body, gate: g, resource: path.Base(response.Request.URL.Path), gone: response.Request.Context().Done()}
			}
			return nil
		},
	}
	server := httptest.NewTLSServer(proxy) // without TLS, clients do not send credentials
	t.Cleanup(server.Close)
	g.cluster = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	return g
}

// hold holds back watch events of these resources until the returned function is called.
func (g *gate) hold(resources ...string) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.opened = resources, make(chan struct{})
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held = nil
		close(g.opened)
	})
}

// wait returns a channel that is closed when the watches of a resource may continue.
func (g *gate) wait(resource string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.held, resource) {
		open := make(chan struct{})
		close(open)
		return open
	}
	return g.opened
}

// watched is the response body of a watch.
type watched struct {
	io.ReadCloser
	gate     *gate
	resource string
	gone     <-chan struct{}
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	select {
	case <-w.gate.wait(w.resource):
	case <-w.gone:
	}
	return n, err
}
