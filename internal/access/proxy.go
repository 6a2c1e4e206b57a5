package access

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/access/client"
)

// Clusters finds the APIs of Clusters.
type Clusters interface {
	// Locate returns the UID of a Cluster. The error is one of the API.
	Locate(ctx context.Context, name string) (types.UID, error)
	// Connect returns the UID of a Cluster and the admin's credentials for its API. The error is one of the API, or any
	// other if the API cannot be reached now.
	Connect(ctx context.Context, name string) (types.UID, *rest.Config, error)
}

// clustersPrefix is the path of all Clusters.
const clustersPrefix = "/apis/" + groupVersion + "/" + client.Clusters + "/"

// verbs are those for which kube-apiserver takes the methods of requests with a name.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
	http.MethodDelete: "delete",
}

// proxyPath returns the name of the Cluster and the path at its API, escaped. The parts are those that kube-apiserver has
// authorized: a name with an escaped character would be another one for it.
func proxyPath(escaped string) (name, path string, isProxy bool) {
	rest, found := strings.CutPrefix(escaped, clustersPrefix)
	if !found {
		return "", "", false
	}
	name, rest, _ = strings.Cut(rest, "/")
	subresource, path, _ := strings.Cut(rest, "/")
	if name == "" || strings.Contains(name, "%") || subresource != client.Proxy {
		return "", "", false
	}
	return name, "/" + path, true
}

// serveProxy passes a request on to the API of a Cluster, with the credentials of its admin: whoever may use the subresource
// may do everything there.
func (s *Server) serveProxy(w http.ResponseWriter, r *http.Request, name, path string) {
	if err := s.proxy(w, r, name, path); err != nil {
		why := *refusalOf(err)
		why.resource, why.object = client.Clusters, name
		why.write(w)
	}
}

func (s *Server) proxy(w http.ResponseWriter, r *http.Request, name, path string) error {
	verb := verbs[r.Method]
	if verb == "" {
		return refuse(http.StatusMethodNotAllowed, "the method %s is not supported", r.Method)
	}
	if s.options.Clusters == nil {
		return refuse(http.StatusNotImplemented, "this manager runs without the controller of Clusters")
	}
	uid, config, err := s.options.Clusters.Connect(r.Context(), name)
	if apierrors.IsNotFound(err) {
		return refuse(http.StatusNotFound, "Cluster %s does not exist", name)
	}
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "Cluster %s: %v", name, err)
	}
	forward, err := newForward(config, name, path)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "Cluster %s: %v", name, err)
	}
	x, err := s.beginWith(r, object{
		kind: "Cluster", resource: client.Clusters, name: name, uid: uid,
		locate: func(ctx context.Context) (types.UID, error) { return s.options.Clusters.Locate(ctx, name) },
	}, client.Proxy, verb, !isLong(r))
	if err != nil {
		return err
	}
	defer x.end()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	// A client that does not read must not hold a session that has ended.
	stop := context.AfterFunc(x.ctx, func() {
		cancel(context.Cause(x.ctx))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now()) // a hijacked connection is closed below
	})
	defer stop()
	forward.ServeHTTP(&activeWriter{w, x}, r.WithContext(ctx))
	return nil
}

// isLong reports whether a request takes as long as its client wants.
func isLong(r *http.Request) bool {
	query := r.URL.Query()
	isSet := func(name string) bool {
		value, err := strconv.ParseBool(query.Get(name))
		return err == nil && value
	}
	return r.Header.Get("Upgrade") != "" || isSet("watch") || isSet("follow")
}

// newForward returns a proxy to the API of a Cluster.
func newForward(config *rest.Config, name, path string) (*httputil.ReverseProxy, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0                       // a watch has none
	config.NextProtos = []string{"http/1.1"} // upgrades need it
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config) // client-go keeps those with the same credentials
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: server.Scheme, Host: server.Host, RawQuery: r.In.URL.RawQuery}
			escaped := strings.TrimSuffix(server.EscapedPath(), "/") + path
			if plain, err := url.PathUnescape(escaped); err == nil {
				r.Out.URL.Path, r.Out.URL.RawPath = plain, escaped
			}
			r.Out.Host = ""
			removeCredentials(r.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Set-Cookie") // it would be one of the host's API
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			why := refuse(http.StatusServiceUnavailable, "the API of Cluster %s does not answer: %v", name, err)
			why.resource, why.object = client.Clusters, name
			why.write(w)
		},
		ErrorLog: log.New(io.Discard, "", 0), // the client has the error
	}, nil
}

const (
	headerProtocols = "Sec-Websocket-Protocol"
	// bearerProtocol is the prefix of a token of the user in headerProtocols.
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

// removeCredentials removes the headers that say who the caller is, or who he wants to be. Those of the aggregator were
// removed when it was authenticated.
func removeCredentials(header http.Header) {
	for name := range header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "impersonate-") || strings.HasPrefix(lower, "x-remote-") || strings.HasPrefix(lower, "x-forwarded-") ||
			slices.Contains([]string{"authorization", "cookie", "forwarded", "x-real-ip"}, lower) {
			delete(header, name)
		}
	}
	protocols, found := header[headerProtocols]
	if !found {
		return
	}
	var kept []string
	for _, protocol := range strings.Split(strings.Join(protocols, ","), ",") {
		if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, bearerProtocol) {
			kept = append(kept, protocol)
		}
	}
	header.Del(headerProtocols)
	if len(kept) > 0 {
		header.Set(headerProtocols, strings.Join(kept, ", "))
	}
}

// activeWriter keeps a session active while something is sent.
type activeWriter struct {
	http.ResponseWriter
	x *session
}

// Unwrap is for http.ResponseController.
func (w *activeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *activeWriter) Write(data []byte) (int, error) {
	w.x.touch()
	return w.ResponseWriter.Write(data)
}

// Hijack implements http.Hijacker, for upgrades. The end of the session closes the connection.
func (w *activeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(w.x.ctx, func() { _ = conn.Close() })
	return &activeConn{conn, w.x}, buffered, nil
}

// activeConn keeps a session active while something is sent.
type activeConn struct {
	net.Conn
	x *session
}

// Read implements net.Conn.
func (c *activeConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.x.touch()
	return n, err
}

// Write implements net.Conn.
func (c *activeConn) Write(data []byte) (int, error) {
	c.x.touch()
	return c.Conn.Write(data)
}
