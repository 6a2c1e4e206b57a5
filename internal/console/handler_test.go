package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/console"
)

const machinesPath = "/kubernetes/apis/cloudnative.tw/v1alpha1/namespaces/default/virtualmachines"

// fakeAPI records requests and answers them with their path. A watch gets one event, and ends with the request.
type fakeAPI struct {
	mu       sync.Mutex
	requests []*http.Request
	ended    chan struct{}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "evil=1")
	w.Header().Set("Content-Security-Policy", "default-src *")
	switch {
	case !readAll(r):
		w.WriteHeader(http.StatusBadRequest)
	case strings.Contains(r.URL.Path, "/namespaces/expired/"):
		w.WriteHeader(http.StatusGone)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Code: http.StatusGone, Message: "too old"})
	case r.URL.Query().Has("watch"):
		_, _ = fmt.Fprintln(w, `{"type":"ADDED","object":{}}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(f.ended)
	default:
		_, _ = fmt.Fprintf(w, `{"path":%q}`, r.URL.Path)
	}
}

func readAll(r *http.Request) bool {
	_, err := io.Copy(io.Discard, r.Body)
	return err == nil
}

func (f *fakeAPI) seen() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// visitor makes the requests of a page.
type visitor struct {
	t           testing.TB
	c           *console.Console
	key, cookie string
}

func newVisitor(t testing.TB) (*visitor, *fakeAPI) {
	t.Helper()
	api := &fakeAPI{ended: make(chan struct{})}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return &visitor{t: t, c: serve(t, &rest.Config{Host: server.URL + "/clusters/a", BearerToken: "users-token"})}, api
}

func token(url string) string { return url[strings.Index(url, "#token=")+len("#token="):] }

// login exchanges a token for a session.
func (v *visitor) login(token string) int {
	v.t.Helper()
	body, _ := json.Marshal(map[string]string{"token": token})
	response := v.send(http.MethodPost, "/session", bytes.NewReader(body), nil)
	var answer struct{ Key string }
	if response.code == http.StatusOK {
		if err := json.Unmarshal([]byte(response.body), &answer); err != nil {
			v.t.Fatal(err)
		}
		v.key, v.cookie = answer.Key, strings.Split(response.header.Get("Set-Cookie"), ";")[0]
	}
	return response.code
}

type response struct {
	code   int
	body   string
	header http.Header
}

// send sends a request as the page would; the headers are added to its own, "" removes one.
func (v *visitor) send(method, path string, body io.Reader, headers map[string]string) response {
	v.t.Helper()
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.c.Address()+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	request.URL.Opaque, request.URL.RawQuery = path, "" // as it is, without cleaning
	for name, value := range map[string]string{"Keelson-Console": v.key, "Cookie": v.cookie, "Origin": v.c.Address()} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	for name, value := range headers {
		switch {
		case name == "Host":
			request.Host = value
		case value == "":
			request.Header.Del(name)
		default:
			request.Header.Set(name, value)
		}
	}
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	raw, err := io.ReadAll(got.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return response{got.StatusCode, string(raw), got.Header}
}

func TestTokenIsGoodOnce(t *testing.T) {
	v, _ := newVisitor(t)
	once := token(v.c.URL())
	if code := v.login("another"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", code)
	}
	if code := v.login(once); code != http.StatusOK {
		t.Fatalf("the token: %d", code)
	}
	if code := v.login(once); code != http.StatusUnauthorized {
		t.Errorf("the token a second time: %d", code)
	}
	if got := v.send(http.MethodGet, machinesPath, nil, nil); got.code != http.StatusOK {
		t.Errorf("the session of the token: %+v", got)
	}
	cookie := v.send(http.MethodPost, "/session", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token(v.c.URL()))), nil).header.Get("Set-Cookie")
	for _, attribute := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie %q has no %s", cookie, attribute)
		}
	}
}

func TestRequestsOfOthersAreRefused(t *testing.T) {
	v, api := newVisitor(t)
	v.login(token(v.c.URL()))
	port := v.c.Address()[strings.LastIndex(v.c.Address(), ":"):]
	other, _ := newVisitor(t)
	other.login(token(other.c.URL()))
	for _, tt := range []struct {
		name, method, path string
		headers            map[string]string
		want               int
	}{
		{"the page itself", http.MethodGet, machinesPath, nil, http.StatusOK},
		{"under the name localhost", http.MethodGet, machinesPath, map[string]string{"Host": "localhost" + port, "Origin": "http://localhost" + port}, http.StatusOK},
		{"a name that was made to resolve to loopback", http.MethodGet, machinesPath, map[string]string{"Host": "evil.example" + port, "Origin": ""}, http.StatusForbidden},
		{"the page under such a name", http.MethodGet, "/", map[string]string{"Host": "evil.example" + port, "Origin": ""}, http.StatusForbidden},
		{"another port", http.MethodGet, machinesPath, map[string]string{"Host": "127.0.0.1:1"}, http.StatusForbidden},
		{"a page of another server", http.MethodPost, machinesPath, map[string]string{"Origin": "http://evil.example"}, http.StatusForbidden},
		{"a page of a guest, whose port is on the same host", http.MethodPost, machinesPath, map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		{"a page without an origin", http.MethodPost, machinesPath, map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"a change without Origin", http.MethodDelete, machinesPath + "/vm", map[string]string{"Origin": ""}, http.StatusForbidden},
		{"no cookie", http.MethodGet, machinesPath, map[string]string{"Cookie": ""}, http.StatusUnauthorized},
		{"the cookie alone, as a guest may get it", http.MethodGet, machinesPath, map[string]string{"Keelson-Console": ""}, http.StatusUnauthorized},
		{"the cookie of another console", http.MethodGet, machinesPath, map[string]string{"Cookie": other.cookie}, http.StatusUnauthorized},
		{"the key of another session", http.MethodGet, machinesPath, map[string]string{"Keelson-Console": other.key}, http.StatusUnauthorized},
		{"no session for /about", http.MethodGet, "/about", map[string]string{"Keelson-Console": ""}, http.StatusUnauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(api.seen())
			got := v.send(tt.method, tt.path, nil, tt.headers)
			if got.code != tt.want {
				t.Errorf("got %d %s, want %d", got.code, got.body, tt.want)
			}
			if reached := len(api.seen()) > before; reached != (tt.want == http.StatusOK) {
				t.Errorf("it reached the API: %v", reached)
			}
		})
	}
}

const clusterPath = "/kubernetes/apis/access.cloudnative.tw/v1alpha1/clusters/demo/proxy"

func TestOnlyRequestsOfThePageReachTheAPI(t *testing.T) {
	v, api := newVisitor(t)
	v.login(token(v.c.URL()))
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/kubernetes/version", http.StatusOK},
		{http.MethodGet, "/kubernetes/api/v1/namespaces", http.StatusOK},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/pods/a", http.StatusOK},
		{http.MethodGet, "/kubernetes/apis/clusterprovisioner.rke.io/v1alpha1/clusters/demo", http.StatusOK},
		{http.MethodPost, "/kubernetes/apis/authentication.k8s.io/v1/selfsubjectreviews", http.StatusOK},
		{http.MethodPatch, machinesPath + "/vm", http.StatusOK},
		{http.MethodDelete, machinesPath + "/vm", http.StatusOK},
		{http.MethodDelete, machinesPath, http.StatusForbidden},
		{http.MethodPut, machinesPath + "/vm/status", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/secrets", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/secrets/a", http.StatusForbidden},
		{http.MethodPost, "/kubernetes/api/v1/namespaces/default/serviceaccounts/a/token", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/pods/a/proxy/", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/pods/a/proxy", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/pods/a/exec", http.StatusForbidden},
		{http.MethodPost, "/kubernetes/api/v1/namespaces/default/pods", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/openapi/v3/apis/cloudnative.tw/v1alpha1", http.StatusOK},
		{http.MethodPost, "/kubernetes/openapi/v3/apis/cloudnative.tw/v1alpha1", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/openapi/v3/apis/apps/v1", http.StatusOK},
		{http.MethodPut, "/kubernetes/openapi/v3/api/v1", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/openapi/v3", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/metrics", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/apis/access.cloudnative.tw/v1alpha1/namespaces/default/virtualmachines/vm/screenshot", http.StatusOK},
		{http.MethodGet, "/kubernetes/apis/access.cloudnative.tw/v1alpha1/namespaces/default/virtualmachines/vm/screen", http.StatusForbidden},
		{http.MethodGet, clusterPath + "/api/v1/namespaces", http.StatusOK},
		{http.MethodGet, clusterPath + "/apis/apps/v1/namespaces/default/deployments/web", http.StatusOK},
		{http.MethodGet, clusterPath + "/api/v1/namespaces/default/pods/a/log", http.StatusOK},
		{http.MethodGet, clusterPath + "/api/v1/namespaces/default/pods/a/exec", http.StatusForbidden},
		{http.MethodGet, clusterPath + "/api/v1/namespaces/default/pods/a/proxy/", http.StatusForbidden},
		{http.MethodGet, clusterPath + "/api/v1/secrets", http.StatusForbidden},
		{http.MethodGet, clusterPath + "/version", http.StatusForbidden},
		{http.MethodGet, clusterPath, http.StatusForbidden},
		{http.MethodDelete, clusterPath + "/api/v1/namespaces/default", http.StatusForbidden},
		{http.MethodPost, clusterPath + "/api/v1/namespaces", http.StatusForbidden},
		{http.MethodGet, clusterPath + "/api/v1/namespaces/default/pods/../secrets", http.StatusBadRequest},
		{http.MethodConnect, machinesPath, http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/pods/%2e%2e/secrets", http.StatusBadRequest},
		{http.MethodGet, "/kubernetes/api/v1/pods/../secrets", http.StatusBadRequest},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/default/pods%2fa%2fproxy", http.StatusForbidden},
		{http.MethodGet, "/kubernetes//api/v1/pods", http.StatusBadRequest},
		{http.MethodGet, machinesPath + "?watch=1", http.StatusBadRequest},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			before := len(api.seen())
			got := v.send(tt.method, tt.path, nil, nil)
			if got.code != tt.want {
				t.Errorf("got %d %s, want %d", got.code, got.body, tt.want)
			}
			if reached := len(api.seen()) > before; reached != (tt.want == http.StatusOK) {
				t.Errorf("it reached the API: %v", reached)
			}
		})
	}
}

func TestTheUserAndNobodyElseReachesTheAPI(t *testing.T) {
	v, api := newVisitor(t)
	v.login(token(v.c.URL()))
	got := v.send(http.MethodPatch, machinesPath+"/vm?dryRun=All", strings.NewReader("{}"), map[string]string{
		"Authorization": "Bearer stolen", "Impersonate-User": "admin", "X-Remote-User": "admin", "Content-Type": "application/merge-patch+json",
	})
	if want := `{"path":"/clusters/a/apis/cloudnative.tw/v1alpha1/namespaces/default/virtualmachines/vm"}`; got.body != want {
		t.Errorf("got %s, want %s", got.body, want)
	}
	request := api.seen()[0]
	header := request.Header.Clone()
	for _, name := range []string{"Accept-Encoding", "Content-Length", "User-Agent"} {
		header.Del(name)
	}
	want := http.Header{"Authorization": {"Bearer users-token"}, "Content-Type": {"application/merge-patch+json"}}
	if diff := cmp.Diff(want, header); diff != "" || request.URL.RawQuery != "dryRun=All" {
		t.Errorf("the request with the query %q (-want +got):\n%s", request.URL.RawQuery, diff)
	}
	if got.header.Get("Set-Cookie") != "" || !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("headers of the API have passed: %v", got.header)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	v, _ := newVisitor(t)
	v.login(token(v.c.URL()))
	large := make([]byte, 4<<20)
	if got := v.send(http.MethodPut, machinesPath+"/vm", bytes.NewReader(large), nil); got.code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 4 MiB: %d", got.code)
	}
	// Of unknown length.
	if got := v.send(http.MethodPut, machinesPath+"/vm", io.MultiReader(bytes.NewReader(large)), nil); got.code == http.StatusOK {
		t.Error("4 MiB in chunks reached the API")
	}
	if got := v.send(http.MethodPost, "/session", strings.NewReader(`{"token":"`+strings.Repeat("a", 4096)+`"}`), nil); got.code != http.StatusBadRequest {
		t.Errorf("a long token: %d", got.code)
	}
}

func TestPage(t *testing.T) {
	v, _ := newVisitor(t)
	for path, contentType := range map[string]string{
		"/": "text/html", "/virtualmachines/default/vm": "text/html", "/assets/app.js": "text/javascript", "/assets/style.css": "text/css", "/assets/none.js": "application/json",
	} {
		got := v.send(http.MethodGet, path, nil, nil)
		if !strings.HasPrefix(got.header.Get("Content-Type"), contentType) {
			t.Errorf("%s: %s", path, got.header.Get("Content-Type"))
		}
		// Attributes for the colors of a terminal; no code and no style elements.
		policy := strings.Replace(got.header.Get("Content-Security-Policy"), "; style-src-attr 'unsafe-inline'", "", 1)
		if !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: Content-Security-Policy: %s", path, policy)
		}
	}
	first := v.send(http.MethodGet, "/assets/app.js", nil, nil)
	if got := v.send(http.MethodGet, "/assets/app.js", nil, map[string]string{"If-None-Match": first.header.Get("ETag")}); got.code != http.StatusNotModified {
		t.Errorf("the same file again: %d", got.code)
	}
	// What a browser loads first, before compression: far below the 500 kB that were promised. The terminal is not in it.
	size := len(first.body)
	for _, chunk := range regexp.MustCompile(`(?:from|import)"\./([^"]+)"`).FindAllStringSubmatch(first.body, -1) {
		size += len(v.send(http.MethodGet, "/assets/"+chunk[1], nil, nil).body)
	}
	if size == 0 || size > 200_000 {
		t.Errorf("the scripts have %d bytes", size)
	}
}

func TestAPIAway(t *testing.T) {
	c := serve(t, &rest.Config{Host: "http://127.0.0.1:1"})
	v := &visitor{t: t, c: c}
	v.login(token(c.URL()))
	got := v.send(http.MethodGet, machinesPath, nil, nil)
	var status metav1.Status
	if err := json.Unmarshal([]byte(got.body), &status); err != nil {
		t.Fatal(err)
	}
	if got.code != http.StatusBadGateway || status.Kind != "Status" || !strings.Contains(status.Message, "The Kubernetes API at 127.0.0.1:1 does not answer") {
		t.Errorf("got %d %s", got.code, got.body)
	}
}

// dial opens the connection for watches.
func (v *visitor) dial(headers map[string]string) (*websocket.Conn, error) {
	header := http.Header{"Cookie": {v.cookie}, "Origin": {v.c.Address()}}
	for name, value := range headers {
		header.Set(name, value)
	}
	conn, _, err := websocket.Dial(v.t.Context(), v.c.Address()+"/watch", &websocket.DialOptions{HTTPHeader: header, Subprotocols: []string{"keelson-watch", v.key}})
	return conn, err
}

type message struct {
	ID    int
	Open  bool
	Event json.RawMessage
	End   *metav1.Status
}

// next returns the next message of the watch.
func next(t testing.TB, conn *websocket.Conn) message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, raw, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.ID != 0 { // no sign of life
			return m
		}
	}
}

func TestWatch(t *testing.T) {
	v, api := newVisitor(t)
	v.login(token(v.c.URL()))
	for name, headers := range map[string]map[string]string{
		"another origin": {"Origin": "http://127.0.0.1:1"}, "no cookie": {"Cookie": ""}, "the wrong key": {"Sec-WebSocket-Protocol": "keelson-watch, wrong"},
	} {
		wrong := *v
		if name == "the wrong key" {
			wrong.key = "wrong"
		}
		if conn, err := wrong.dial(headers); err == nil {
			t.Errorf("%s: opened", name)
			_ = conn.CloseNow()
		}
	}
	conn, err := v.dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	say := func(command string) {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(command)); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.TrimPrefix(machinesPath, "/kubernetes")
	say(fmt.Sprintf(`{"id":1,"path":%q}`, path+"?watch=1&resourceVersion=7"))
	if m := next(t, conn); m.ID != 1 || !m.Open {
		t.Errorf("first message: %+v", m)
	}
	if m := next(t, conn); m.ID != 1 || string(m.Event) != `{"type":"ADDED","object":{}}` {
		t.Errorf("the event: %+v", m)
	}
	if got := api.seen()[0]; got.Header.Get("Authorization") != "Bearer users-token" || got.URL.RawQuery != "watch=1&resourceVersion=7" {
		t.Errorf("the API got %v %v", got.URL, got.Header)
	}
	for id, tt := range map[int]struct {
		path string
		code int32
	}{
		2: {"/api/v1/secrets?watch=1", http.StatusForbidden},
		3: {path, http.StatusForbidden},
		4: {"http://evil.example" + path + "?watch=1", http.StatusForbidden},
		5: {"//evil.example" + path + "?watch=1", http.StatusForbidden},
		6: {strings.Replace(path, "default", "expired", 1) + "?watch=1", http.StatusGone},
	} {
		say(fmt.Sprintf(`{"id":%d,"path":%q}`, id, tt.path))
		if m := next(t, conn); m.ID != id || m.End == nil || m.End.Code != tt.code {
			t.Errorf("%s: %+v, want the end with %d", tt.path, m, tt.code)
		}
	}
	say(`{"id":1}`)
	select {
	case <-api.ended:
	case <-time.After(time.Minute):
		t.Error("the watch goes on after its end")
	}
}
