package access

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// cluster is the Cluster demo, whose API answers with what it was asked.
type cluster struct {
	api *httptest.Server

	mu   sync.Mutex
	uid  types.UID
	down error
	// streaming is closed when the API ends a watch.
	ended chan struct{}
}

func (f *fixture) newCluster() *cluster {
	f.Helper()
	c := &cluster{uid: "c1", ended: make(chan struct{})}
	c.api = httptest.NewServer(http.HandlerFunc(c.serve))
	f.Cleanup(c.api.Close)
	f.server.options.Clusters = c
	return c
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // of a test
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n\r\n", r.Header.Get("Upgrade"))
		_, _ = io.Copy(conn, conn) // until the client ends it
	case r.URL.Query().Get("watch") == "true":
		_, _ = io.WriteString(w, "event\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(c.ended)
	default:
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "a=b")
		_, _ = fmt.Fprintf(w, "%s %s %s\n", r.Method, r.URL.RequestURI(), body)
		_ = r.Header.Write(w)
	}
}

func (c *cluster) Locate(_ context.Context, name string) (types.UID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "demo" {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, name)
	}
	return c.uid, nil
}

func (c *cluster) Connect(ctx context.Context, name string) (types.UID, *rest.Config, error) {
	uid, err := c.Locate(ctx, name)
	if err == nil {
		err = c.down
	}
	return uid, &rest.Config{Host: c.api.URL, BearerToken: "of-the-admin"}, err
}

func (f *fixture) proxied(path string) string {
	return f.http.URL + "/apis/" + groupVersion + "/clusters/demo/proxy" + path
}

func TestProxy(t *testing.T) {
	f := newFixture(t, testLimits())
	f.newCluster()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.proxied("/api/v1//x%2Fy?a=b;c&d=%20"), strings.NewReader("body"))
	f.do(err)
	request.Header = identity("jane")
	for name, value := range map[string]string{
		"Authorization": "Bearer of-jane", "Cookie": "session=1", "Impersonate-User": "root", "Impersonate-Extra-A": "b", "X-Remote-Other": "x",
		"Sec-WebSocket-Protocol": bearerProtocol + "secret, v5.channel.k8s.io", "X-App": "kept", "Connection": "X-Hop", "X-Hop": "hop",
	} {
		request.Header.Set(name, value)
	}
	response, err := f.client(f.front).Do(request)
	f.do(err)
	defer response.Body.Close() //nolint:errcheck // it was only read
	raw, err := io.ReadAll(response.Body)
	f.do(err)
	got := string(raw)
	if !strings.HasPrefix(got, "POST /api/v1//x%2Fy?a=b;c&d=%20 body\n") {
		t.Errorf("the API got %s", got)
	}
	for _, want := range []string{"Authorization: Bearer of-the-admin", "Sec-Websocket-Protocol: v5.channel.k8s.io", "X-App: kept"} {
		if !strings.Contains(got, want) {
			t.Errorf("the API did not get %s:\n%s", want, got)
		}
	}
	for _, secret := range []string{"jane", "session", "Impersonate", "X-Remote", "secret", "Scopes", "X-Hop", "Forwarded"} {
		if strings.Contains(got, secret) {
			t.Errorf("the API got %s:\n%s", secret, got)
		}
	}
	if cookie := response.Header.Get("Set-Cookie"); cookie != "" {
		t.Errorf("the client got the cookie %s", cookie)
	}
}

func TestProxyRefusals(t *testing.T) {
	f := newFixture(t, testLimits())
	c := f.newCluster()
	for _, test := range []struct {
		path string
		down error
		want int
	}{
		{"/clusters/other/proxy/api", nil, http.StatusNotFound},
		{"/clusters/demo%2Fproxy/proxy/api", nil, http.StatusNotFound},
		{"/clusters/demo/status", nil, http.StatusNotFound},
		{"/clusters/demo/proxy/api", errors.New("it is not Ready"), http.StatusServiceUnavailable},
	} {
		c.down = test.down
		if code, body := f.get(f.http.URL+"/apis/"+groupVersion+test.path, f.front, identity("jane")); code != test.want || int(statusOf(t, body).Code) != code {
			t.Errorf("%s: got %d, %s", test.path, code, body)
		}
	}
	c.down = nil
	if code, _ := f.get(f.proxied("/api"), nil, identity("system:admin")); code != http.StatusUnauthorized {
		t.Errorf("a forged identity: %d", code)
	}
	c.api.Close()
	code, body := f.get(f.proxied("/api"), f.front, identity("jane"))
	if code != http.StatusServiceUnavailable || !strings.Contains(statusOf(t, body).Message, "Cluster demo does not answer") {
		t.Errorf("an API that does not answer: %d, %s", code, body)
	}
}

// watch opens a watch and reads the first event.
func (f *fixture) watch() io.ReadCloser {
	f.Helper()
	request, err := http.NewRequestWithContext(f.Context(), http.MethodGet, f.proxied("/api/v1/pods?watch=true"), http.NoBody)
	f.do(err)
	request.Header = identity("jane")
	response, err := f.client(f.front).Do(request)
	f.do(err)
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if f.do(err); line != "event\n" {
		f.Fatalf("got %q", line)
	}
	return response.Body
}

// A watch ends when its client leaves, when the permission is withdrawn, and when the Cluster is another one.
func TestProxiedWatchEnds(t *testing.T) {
	for name, cause := range map[string]func(*fixture, *cluster, io.Closer){
		"the client leaves":           func(_ *fixture, _ *cluster, body io.Closer) { _ = body.Close() },
		"the permission is withdrawn": func(f *fixture, _ *cluster, _ io.Closer) { f.m.set(func() { f.m.allowed = false }) },
		"the Cluster is another one": func(_ *fixture, c *cluster, _ io.Closer) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.uid = "c2"
		},
	} {
		t.Run(name, func(t *testing.T) {
			limits := testLimits()
			limits.Review = 10 * time.Millisecond
			f := newFixture(t, limits)
			c := f.newCluster()
			body := f.watch()
			cause(f, c, body)
			select {
			case <-c.ended:
			case <-time.After(30 * time.Second):
				t.Error("the API of the Cluster still watches")
			}
			_, _ = io.Copy(io.Discard, body) // it ends
			_ = body.Close()
		})
	}
}

// An upgraded connection, as that of exec, passes bytes both ways, and ends with the session.
func TestProxiedUpgrade(t *testing.T) {
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		t.Run(protocol, func(t *testing.T) {
			f := newFixture(t, testLimits())
			f.newCluster()
			before := runtime.NumGoroutine()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.proxied("/api/v1/namespaces/a/pods/p/exec"), http.NoBody)
			f.do(err)
			request.Header = identity("jane")
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", protocol)
			response, err := f.client(f.front).Do(request)
			f.do(err)
			if response.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %s", response.Status)
			}
			stream := response.Body.(io.ReadWriteCloser)
			_, err = io.WriteString(stream, "typed")
			f.do(err)
			got := make([]byte, 5)
			if _, err := io.ReadFull(stream, got); err != nil || string(got) != "typed" {
				t.Errorf("got %q, %v", got, err)
			}
			if protocol == "websocket" { // the client leaves
				_ = stream.Close()
			} else {
				f.server.Close()
				if _, err := stream.Read(got); err == nil {
					t.Error("the connection outlives the server")
				}
				_ = stream.Close()
			}
			f.settled(before + 2) // the API of the Cluster may keep a connection
		})
	}
}

func TestLimitsOfProxies(t *testing.T) {
	limits := testLimits()
	limits.PerCluster = 1
	f := newFixture(t, limits)
	f.newCluster()
	body := f.watch()
	if code, text := f.get(f.proxied("/api"), f.front, identity("jane")); code != http.StatusTooManyRequests || !strings.Contains(text, "Cluster demo has 1 sessions") {
		t.Errorf("got %d, %s", code, text)
	}
	f.open("console") // sessions with machines are counted apart
	_ = body.Close()
	harness.Eventually(t, "there is room for another one", func() bool {
		code, _ := f.get(f.proxied("/api"), f.front, identity("jane"))
		return code == http.StatusOK
	})
}

func TestProxyPath(t *testing.T) {
	for escaped, want := range map[string][2]string{
		clustersPrefix + "demo/proxy":          {"demo", "/"},
		clustersPrefix + "demo/proxy/api/v1":   {"demo", "/api/v1"},
		clustersPrefix + "demo/proxy//a%2Fb":   {"demo", "//a%2Fb"},
		clustersPrefix + "demo/prox":           {},
		clustersPrefix + "demo":                {},
		clustersPrefix + "/proxy/api":          {},
		clustersPrefix + "a%2e/proxy/api":      {},
		"/apis/" + client.Group + "/clusters/": {},
	} {
		if name, path, _ := proxyPath(escaped); [2]string{name, path} != want {
			t.Errorf("%s: got %s, %s", escaped, name, path)
		}
	}
}
