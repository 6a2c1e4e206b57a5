package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
)

// selfPath is that of the question who a user is.
const selfPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// maxReview is the most that is read of the answer to that question, in bytes.
const maxReview = 1 << 20

// tokenKey is the key of the user's token in the context of a request.
type tokenKey struct{}

// bearer returns the token that a proxy has added to a request of a shared console; "" if there is none. The API decides
// whether it is worth anything.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// identify sets the headers of a request to the API that say who sends it. Without a token, it is the user of the
// kubeconfig.
func (c *Console) identify(ctx context.Context, header http.Header) {
	header.Set("User-Agent", "keelson-console")
	if token, _ := ctx.Value(tokenKey{}).(string); token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
}

// configOf returns the configuration of the API with the credentials of a request.
func (c *Console) configOf(ctx context.Context) *rest.Config {
	token, _ := ctx.Value(tokenKey{}).(string)
	if token == "" {
		return c.config
	}
	config := rest.CopyConfig(c.config)
	config.BearerToken = token
	return config
}

// authenticate asks the API whose token it is. The user is "" if the API accepts the token, and the user may not ask.
func (c *Console) authenticate(ctx context.Context, token string) (user string, err error) {
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", errors.New("Log in with a token of the Kubernetes API.") //nolint:staticcheck // a sentence for the user
	}
	target := *c.server
	target.Path = c.pathOf(selfPath)
	body := strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	request, err := http.NewRequestWithContext(context.WithValue(ctx, tokenKey{}, token), http.MethodPost, target.String(), body)
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	c.identify(request.Context(), request.Header)
	response, err := c.client.Do(request)
	if err != nil {
		return "", errors.New(c.unreachableMessage(err))
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK, http.StatusCreated:
		var review authenticationv1.SelfSubjectReview
		if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxReview)).Decode(&review); err != nil {
			return "", fmt.Errorf("The answer of the Kubernetes API is not readable: %w.", err) //nolint:staticcheck // as below
		}
		return review.Status.UserInfo.Username, nil
	case http.StatusForbidden:
		return "", nil
	case http.StatusUnauthorized:
		return "", errors.New("The Kubernetes API does not accept this token: it is wrong or has expired.") //nolint:staticcheck // as above
	}
	return "", fmt.Errorf("The Kubernetes API answered %s.", response.Status) //nolint:staticcheck // as above
}

// tellLogin tells a page without a session how to get one.
func (c *Console) tellLogin(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, map[string]bool{"login": c.shared, "proxy": c.shared && bearer(r) != ""})
}

// noSession is the message to a request without a session.
func (c *Console) noSession() string {
	if c.shared {
		return "There is no session, or it has ended: log in again."
	}
	return "There is no session, or it has ended: run keelson console again and open its URL."
}
