package serving

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const (
	// allowedFor and deniedFor are the cache durations of decisions.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// reviewTimeout bounds the two reviews by the API server.
	reviewTimeout = 10 * time.Second
	// decisionLimit limits the cached decisions, because anybody who can connect can invent tokens.
	decisionLimit = 1024
)

// accessFilter accepts requests with a token that the API server authenticates and whose user may access the path.
//
// controller-runtime has a filter for this. It handles an unknown token as a failure, with status 500 and a log line
// each time, and it links half of an API server into the program.
type accessFilter struct {
	tokens  authenticationv1client.TokenReviewInterface
	reviews authorizationv1client.SubjectAccessReviewInterface
	inner   http.Handler
	log     logr.Logger

	mu    sync.Mutex
	known map[accessKey]decision
}

// accessKey identifies a decision. It has the hash of the token, not the token.
type accessKey struct {
	token        [sha256.Size]byte
	method, path string
}

type decision struct {
	status int // http.StatusOK, or why not
	until  time.Time
}

// newAccessFilter returns inner behind a filter that asks the API server of cfg.
func newAccessFilter(cfg *rest.Config, inner http.Handler, log logr.Logger) (*accessFilter, error) {
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the client for token reviews: %w", err)
	}
	authentication, err := authenticationv1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("build the client for token reviews: %w", err)
	}
	authorization, err := authorizationv1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("build the client for access reviews: %w", err)
	}
	return &accessFilter{
		tokens: authentication.TokenReviews(), reviews: authorization.SubjectAccessReviews(),
		inner: inner, log: log, known: map[accessKey]decision{},
	}, nil
}

// ServeHTTP implements http.Handler.
func (f *accessFilter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	status := http.StatusUnauthorized
	if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
		status = f.decide(r.Context(), token, r.Method, r.URL.Path)
	}
	switch status {
	case http.StatusOK:
		f.inner.ServeHTTP(w, r)
		return
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, http.StatusText(status), status)
}

// decide returns http.StatusOK if the request is allowed, otherwise the status of the response.
func (f *accessFilter) decide(ctx context.Context, token, method, path string) int {
	key := accessKey{token: sha256.Sum256([]byte(token)), method: method, path: path}
	now := time.Now()
	f.mu.Lock()
	before, found := f.known[key]
	f.mu.Unlock()
	if found && now.Before(before.until) {
		return before.status
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	status, err := f.ask(ctx, token, method, path)
	if err != nil {
		f.log.Error(err, "Failed to check access to the metrics", "path", path)
		return http.StatusInternalServerError
	}
	lasts := deniedFor
	if status == http.StatusOK {
		lasts = allowedFor
	}
	f.remember(key, decision{status, now.Add(lasts)}, now)
	return status
}

// ask asks the API server for the user of the token, and whether the user may send the request.
func (f *accessFilter) ask(ctx context.Context, token, method, path string) (int, error) {
	who, err := f.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask the API server for the user of a token: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: strings.ToLower(method)},
	}}
	for key, value := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	answer, err := f.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask the API server whether %s may %s %s: %w", user.Username, strings.ToLower(method), path, err)
	}
	if !answer.Status.Allowed {
		f.log.V(1).Info("Denied access to the metrics", "user", user.Username, "path", path)
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (f *accessFilter) remember(key accessKey, v decision, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= decisionLimit {
		maps.DeleteFunc(f.known, func(_ accessKey, v decision) bool { return !now.Before(v.until) })
	}
	if len(f.known) >= decisionLimit {
		clear(f.known) // decisions are made again
	}
	f.known[key] = v
}
