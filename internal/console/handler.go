package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// apiPrefix is the path below which the API is.
	apiPrefix = "/kubernetes"
	// keyHeader has the key of the session in requests. In responses it marks those that are not from the API.
	keyHeader = "Keelson-Console"
	// maxBody is the size of a request in bytes. It is the limit of kube-apiserver.
	maxBody = 3 << 20
	// maxLogin is the size of the body with a one-time token, maxSharedLogin that with one of the API.
	maxLogin, maxSharedLogin = 1 << 10, 16 << 10
)

func (c *Console) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /session", c.login)
	mux.HandleFunc("GET /session", c.tellLogin)
	mux.Handle("GET /about", c.inSession(http.HandlerFunc(c.tellAbout)))
	mux.Handle("GET /watch", c.inSession(http.HandlerFunc(c.watch)))
	mux.Handle("GET /terminal/{namespace}/{name}", c.inSession(http.HandlerFunc(c.terminal)))
	mux.Handle("GET /screen/{namespace}/{name}", c.inSession(http.HandlerFunc(c.screen)))
	mux.Handle("GET /kubeconfig/{name}", c.inSession(http.HandlerFunc(c.kubeconfig)))
	mux.Handle("GET /discovery", c.inSession(http.HandlerFunc(c.tellKinds)))
	mux.Handle("GET /remedies", c.inSession(http.HandlerFunc(c.remedies)))
	mux.Handle("GET /capacity", c.inSession(http.HandlerFunc(c.capacity)))
	mux.Handle("POST /schedules", c.inSession(http.HandlerFunc(c.schedules)))
	mux.Handle("GET /timeline", c.inSession(http.HandlerFunc(c.timeline)))
	mux.Handle(apiPrefix+"/", c.inSession(http.HandlerFunc(c.serveAPI)))
	mux.Handle("/", c.page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if c.shared && r.URL.Path == "/healthz" { // of a kubelet, which has no name for this host
			w.WriteHeader(http.StatusOK)
			return
		}
		if message := c.foreign(r); message != "" {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, message)
			return
		}
		// The mux would redirect a path that is not clean; the page makes no such request.
		if strings.Contains(r.URL.Path, "//") || strings.Contains(r.URL.Path, "..") {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "The path is not in its shortest form.")
			return
		}
		if r.ContentLength > maxBody {
			refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "The request is larger than 3 MiB.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	})
}

// secure sets the headers of every response. Those of the page allow more, see page.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// foreign returns why a request is not from the page of this console; "" if it may be. The check of Host stops pages
// whose name was made to resolve to loopback (DNS rebinding), that of Origin those of all other servers.
func (c *Console) foreign(r *http.Request) string {
	expected, known := c.origins[r.Host]
	if !known {
		return "The console is not served under this name; open it at " + c.Address() + "."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != expected {
		return "Requests of other pages are refused."
	}
	if r.Header.Get("Origin") == "" && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "A request that changes something needs the header Origin."
	}
	return ""
}

// login exchanges a token for a session: the one-time token, or that of a user of a shared console.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	limit := int64(maxLogin)
	if c.shared {
		limit = maxSharedLogin
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "The token is missing.")
		return
	}
	var cookie, key string
	if c.shared {
		given := strings.TrimSpace(body.Token)
		user, err := c.authenticate(r.Context(), cmp.Or(bearer(r), given))
		if err != nil {
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
			return
		}
		cookie, key = c.sessions.beginAs(user, given)
	} else {
		ok := false
		if cookie, key, ok = c.sessions.begin(body.Token); !ok {
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "This link was used already, or has expired.")
			return
		}
	}
	http.SetCookie(w, &http.Cookie{
		Name: c.cookie, Value: cookie, Path: "/", HttpOnly: true, Secure: c.isSecure(r.Host), SameSite: http.SameSiteStrictMode,
	})
	answer(w, http.StatusOK, map[string]string{"key": key})
}

// inSession serves requests with both secrets of a session. A WebSocket has the key as a protocol, because a page
// cannot set its headers.
func (c *Console) inSession(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(keyHeader)
		if key == "" {
			_, protocol, _ := strings.Cut(r.Header.Get("Sec-WebSocket-Protocol"), ",")
			key = strings.TrimSpace(protocol)
		}
		cookie, err := r.Cookie(c.cookie)
		token, valid := "", false
		if err == nil {
			token, valid = c.sessions.valid(cookie.Value, key)
		}
		if c.shared {
			token = cmp.Or(bearer(r), token) // a proxy has the newer one
			valid = valid && token != ""
		}
		if !valid {
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, c.noSession())
			return
		}
		inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
	})
}

func (c *Console) tellAbout(w http.ResponseWriter, _ *http.Request) {
	about := c.about
	if c.sshKey != nil {
		about.SSHKey, _ = c.sshKey() // without one, users type theirs
	}
	answer(w, http.StatusOK, about)
}

// refuse answers in the format of the API, marked as not being from it.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set(keyHeader, "refused")
	answer(w, code, newStatus(code, reason, message))
}

func newStatus(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the browser has gone
}
