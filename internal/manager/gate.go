package manager

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
	// letInFor and keptOutFor are how long the verdict about a token counts.
	letInFor   = time.Minute
	keptOutFor = 10 * time.Second
	// verdictTimeout bounds the two questions to the API server.
	verdictTimeout = 10 * time.Second
	// verdictLimit is how many verdicts are remembered. Whoever may connect can make up tokens.
	verdictLimit = 1024
)

// gate lets requests through whose token the API server knows, and whose user may have the path.
//
// controller-runtime has a filter for this. It takes a token that the API server does not know for a failure, which it
// answers with 500 and logs each time, and it brings the half of an API server into the program.
type gate struct {
	tokens  authenticationv1client.TokenReviewInterface
	reviews authorizationv1client.SubjectAccessReviewInterface
	inner   http.Handler
	log     logr.Logger

	mu    sync.Mutex
	known map[question]verdict
}

// question is what a request asks for, by whom; the token itself is not kept.
type question struct {
	token        [sha256.Size]byte
	method, path string
}

type verdict struct {
	status int // http.StatusOK, or why not
	until  time.Time
}

// newGate returns inner behind a gate that asks the API server of cfg.
func newGate(cfg *rest.Config, inner http.Handler, log logr.Logger) (*gate, error) {
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the client that checks who reads metrics: %w", err)
	}
	authentication, err := authenticationv1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("build the client that checks who reads metrics: %w", err)
	}
	authorization, err := authorizationv1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("build the client that checks who may read metrics: %w", err)
	}
	return &gate{
		tokens: authentication.TokenReviews(), reviews: authorization.SubjectAccessReviews(),
		inner: inner, log: log, known: map[question]verdict{},
	}, nil
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	status := http.StatusUnauthorized
	if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
		status = g.judge(r.Context(), token, r.Method, r.URL.Path)
	}
	switch status {
	case http.StatusOK:
		g.inner.ServeHTTP(w, r)
		return
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, http.StatusText(status), status)
}

// judge returns http.StatusOK if the request is let in, else what it is answered.
func (g *gate) judge(ctx context.Context, token, method, path string) int {
	q := question{token: sha256.Sum256([]byte(token)), method: method, path: path}
	now := time.Now()
	g.mu.Lock()
	before, found := g.known[q]
	g.mu.Unlock()
	if found && now.Before(before.until) {
		return before.status
	}
	ctx, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	status, err := g.ask(ctx, token, method, path)
	if err != nil {
		g.log.Error(err, "Who reads metrics cannot be checked", "path", path)
		return http.StatusInternalServerError
	}
	lasts := keptOutFor
	if status == http.StatusOK {
		lasts = letInFor
	}
	g.remember(q, verdict{status, now.Add(lasts)}, now)
	return status
}

// ask asks the API server who has the token, and whether they may do that.
func (g *gate) ask(ctx context.Context, token, method, path string) (int, error) {
	who, err := g.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask the API server who has a token: %w", err)
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
	answer, err := g.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask the API server whether %s may %s %s: %w", user.Username, strings.ToLower(method), path, err)
	}
	if !answer.Status.Allowed {
		g.log.V(1).Info("Refused to show metrics", "user", user.Username, "path", path)
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (g *gate) remember(q question, v verdict, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= verdictLimit {
		maps.DeleteFunc(g.known, func(_ question, v verdict) bool { return !now.Before(v.until) })
	}
	if len(g.known) >= verdictLimit {
		clear(g.known) // they are asked again
	}
	g.known[q] = v
}
