package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/testing/browser"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// sharedConsole is a console of many users, behind a proxy with TLS that serves it as keelson.example.com.
type sharedConsole struct {
	t       *testing.T
	handler string // URL of the console itself
}

// newShared returns a console for an API that accepts the tokens that begin with good, and answers with the token.
func newShared(t *testing.T) *sharedConsole {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasPrefix(token, "good") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": token, "as": r.Header.Get("Impersonate-User")})
	}))
	t.Cleanup(api.Close)
	public, err := url.Parse("https://keelson.example.com")
	if err != nil {
		t.Fatal(err)
	}
	address := harness.FreeAddress(t).String()
	serveShared(t, console.Options{
		Config: &rest.Config{Host: api.URL}, Cluster: "test", Version: "v0", Shared: &console.Shared{Address: address, URLs: []*url.URL{public}},
	})
	return &sharedConsole{t, "http://" + address}
}

// serveShared serves a console until the end of the test.
func serveShared(t *testing.T, o console.Options) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := console.Listen(ctx, o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// send sends a request as the page does, unless headers say otherwise.
func (s *sharedConsole) send(method, path, body string, headers map[string]string) (*http.Response, map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.handler+path, bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Host = "keelson.example.com"
	request.Header.Set("Origin", "https://keelson.example.com")
	for name, value := range headers {
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer := map[string]any{}
	_ = json.NewDecoder(response.Body).Decode(&answer) // a page has none
	return response, answer
}

// logIn returns the headers of a session.
func (s *sharedConsole) logIn(token string, headers map[string]string) map[string]string {
	s.t.Helper()
	response, answer := s.send(http.MethodPost, "/session", `{"token":"`+token+`"}`, headers)
	if response.StatusCode != http.StatusOK {
		s.t.Fatalf("log in with %q: %s %v", token, response.Status, answer)
	}
	cookie := response.Cookies()[0]
	if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode {
		s.t.Errorf("the cookie is %v", cookie)
	}
	return map[string]string{"Cookie": cookie.Name + "=" + cookie.Value, "Keelson-Console": answer["key"].(string)}
}

// Each user has the permissions of the own token, and nobody others.
func TestUsersOfASharedConsole(t *testing.T) {
	s := newShared(t)
	first, second := s.logIn("good-1", nil), s.logIn("good-2", nil)
	for token, session := range map[string]map[string]string{"good-1": first, "good-2": second} {
		session["Impersonate-User"] = "admin"
		if response, answer := s.send(http.MethodGet, machinesPath, "", session); answer["token"] != token || answer["as"] != "" {
			t.Errorf("the API got %v, %s", answer, response.Status)
		}
		// What the console itself reads for a user, it reads with the token, too: this Cluster has no kubeconfig.
		if response, answer := s.send(http.MethodGet, "/kubeconfig/demo", "", session); response.StatusCode != http.StatusNotFound {
			t.Errorf("the kubeconfig of a Cluster: %s %v", response.Status, answer)
		}
	}
	mixed := map[string]string{"Cookie": first["Cookie"], "Keelson-Console": second["Keelson-Console"]}
	for name, headers := range map[string]map[string]string{"none": nil, "of two sessions": mixed, "a token of a proxy without a session": {"Authorization": "Bearer good-1"}} {
		if response, _ := s.send(http.MethodGet, machinesPath, "", headers); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", name, response.Status)
		}
	}
	for _, token := range []string{"", "bad", "good 1"} {
		if response, answer := s.send(http.MethodPost, "/session", `{"token":"`+token+`"}`, nil); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("log in with %q: %s %v", token, response.Status, answer)
		}
	}
}

// A proxy that adds a token to each request needs no form. The newest token counts.
func TestSharedConsoleBehindAProxy(t *testing.T) {
	s := newShared(t)
	if _, answer := s.send(http.MethodGet, "/session", "", map[string]string{"Authorization": "Bearer good-1"}); answer["proxy"] != true || answer["login"] != true {
		t.Errorf("the ways in: %v", answer)
	}
	session := s.logIn("", map[string]string{"Authorization": "Bearer good-1"})
	session["Authorization"] = "Bearer good-later"
	if _, answer := s.send(http.MethodGet, machinesPath, "", session); answer["token"] != "good-later" {
		t.Errorf("the API got %v", answer)
	}
	session["Authorization"] = "Bearer expired"
	if response, _ := s.send(http.MethodGet, machinesPath, "", session); response.StatusCode != http.StatusUnauthorized || response.Header.Get("Keelson-Console") == "" {
		t.Errorf("with an expired token: %s %v", response.Status, response.Header)
	}
	delete(session, "Authorization")
	if response, _ := s.send(http.MethodGet, machinesPath, "", session); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("past the proxy: %s", response.Status)
	}
}

// Other names and pages are refused, except for the probe of a kubelet.
func TestSharedConsoleChecksHostAndOrigin(t *testing.T) {
	s := newShared(t)
	session := s.logIn("good", nil)
	for name, value := range map[string]string{"Host": "evil.example", "Origin": "http://keelson.example.com"} {
		session[name] = value
		if response, _ := s.send(http.MethodGet, machinesPath, "", session); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s: %s", name, value, response.Status)
		}
		delete(session, name)
	}
	if response, _ := s.send(http.MethodGet, "/healthz", "", map[string]string{"Host": "10.0.0.1:8090"}); response.StatusCode != http.StatusOK {
		t.Errorf("the probe: %s", response.Status)
	}
	response, _ := s.send(http.MethodGet, "/", "", nil)
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, " wss://keelson.example.com;") {
		t.Errorf("the policy is %s", policy)
	}
}

// A user logs in with a token of a ServiceAccount, and sees and may do what its role allows.
func TestPageOfASharedConsole(t *testing.T) {
	w := newWorld(t)
	clients, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"}}
	if _, err := clients.CoreV1().ServiceAccounts(w.namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: account.ObjectMeta, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "reader"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}
	role := &rbacv1.Role{ObjectMeta: account.ObjectMeta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cloudnative.tw"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "list", "watch"}},
	}}
	if err := errors.Join(w.client.Create(t.Context(), role), w.client.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	issued, err := clients.CoreV1().ServiceAccounts(w.namespace).CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := harness.FreeAddress(t).String()
	public := &url.URL{Scheme: "http", Host: address}
	serveShared(t, console.Options{
		Config: rest.AnonymousClientConfig(w.config), Cluster: "test", Version: "v0", Shared: &console.Shared{Address: address, URLs: []*url.URL{public}},
	})
	b := browser.New(t)
	b.Expect("401") // without a session, and with a wrong token
	b.Expect("403") // the other kinds
	b.Open(public.String() + "/virtualmachines?namespace=" + w.namespace)
	b.Sees("Log in", "Token of the Kubernetes API")
	logIn := func(token string) {
		t.Helper()
		b.Do(chromedp.SetValue("#token", token), chromedp.Click("form button"))
	}
	logIn("wrong")
	b.Sees("The Kubernetes API does not accept this token")
	logIn(issued.Status.Token)
	b.Until(`!document.querySelector('#token')`)
	b.Open(public.String() + "/virtualmachines/" + w.namespace + "/web")
	b.Sees("web", "GuestReady")
	if value := browser.Value[string](b, `document.cookie`); value != "" {
		t.Errorf("the page reads the cookie %s", value)
	}
}
