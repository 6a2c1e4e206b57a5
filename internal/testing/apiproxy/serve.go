package apiproxy

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// silent discards errors about broken connections, which are intentional here.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// Forward returns a handler that forwards requests to an API with the identity of the config. If
// the API is unavailable, clients see a broken connection, as without a proxy.
func Forward(t testing.TB, config *rest.Config) *httputil.ReverseProxy {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	api, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(api) },
		Transport:     transport,
		FlushInterval: -1, // for watches
		ErrorLog:      silent(),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// Serve serves a handler on its own port until the end of the test, and returns its URL.
func Serve(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = silent()
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// Kubeconfig writes a kubeconfig for an API without authentication, and returns its path.
func Kubeconfig(t testing.TB, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: address}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy"}},
		CurrentContext: "proxy",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Deaf discards a response.
type Deaf struct{ header http.Header }

// Header implements http.ResponseWriter.
func (d *Deaf) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

// Write implements http.ResponseWriter.
func (d *Deaf) Write(data []byte) (int, error) { return len(data), nil }

// WriteHeader implements http.ResponseWriter.
func (d *Deaf) WriteHeader(int) {}
