package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Headers that pass. The others stay here: the cookie and the key of the session, and those that would change
// the user, such as Authorization and Impersonate-User.
var (
	requestHeaders  = []string{"Accept", "Content-Type"}
	responseHeaders = []string{"Content-Type", "Retry-After", "Warning"}
)

// connect prepares requests to the API.
func (c *Console) connect(config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // a watch has none
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("the server of the kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", server, err)
	}
	c.server, c.client = server, &http.Client{Transport: transport, CheckRedirect: noRedirects}
	c.forward = &httputil.ReverseProxy{
		Transport: transport, Rewrite: c.rewrite, ModifyResponse: c.reduce,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { c.unreachable(w, err) },
		ErrorLog:     log.New(io.Discard, "", 0), // the page has the error
	}
	return nil
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// serveAPI hands a request over to the API, if it is one that the page makes.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), apiPrefix)
	switch {
	case r.Header.Get("Upgrade") != "" || !c.allow(r.Context(), r.Method, path):
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("The console makes no request such as %s %s.", r.Method, path))
	case r.URL.Query().Has("watch"):
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "Watches share the connection at /watch.")
	default:
		c.forward.ServeHTTP(w, r)
	}
}

// rewrite makes the request to the API.
func (c *Console) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = c.server.Scheme, c.server.Host, ""
	r.Out.URL.Path, r.Out.URL.RawPath = c.pathOf(strings.TrimPrefix(r.In.URL.Path, apiPrefix)), ""
	r.Out.Header = only(r.In.Header, requestHeaders)
	c.identify(r.In.Context(), r.Out.Header)
}

// pathOf returns the path at the server, whose URL may have one.
func (c *Console) pathOf(path string) string { return strings.TrimSuffix(c.server.Path, "/") + path }

// reduce keeps the headers of a response that the page reads. The security headers are set already. An error is JSON also
// for a request that wants YAML, because the page reads no YAML.
func (c *Console) reduce(r *http.Response) error {
	r.Header = only(r.Header, responseHeaders)
	if c.shared && r.StatusCode == http.StatusUnauthorized {
		r.Header.Set(keyHeader, "refused") // the token has expired: the user has to log in again
	}
	if r.StatusCode < http.StatusBadRequest || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/yaml") {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxFailure))
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return err
	}
	raw, err = yaml.YAMLToJSON(raw)
	if err != nil {
		return fmt.Errorf("read its error: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return nil
}

func only(header http.Header, names []string) http.Header {
	kept := http.Header{}
	for _, name := range names {
		if values := header.Values(name); len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	return kept
}

// unreachable tells the page that the API does not answer.
func (c *Console) unreachable(w http.ResponseWriter, err error) {
	refuse(w, http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, c.unreachableMessage(err))
}

func (c *Console) unreachableMessage(err error) string {
	return fmt.Sprintf("The Kubernetes API at %s does not answer: %v", c.server.Host, err)
}
