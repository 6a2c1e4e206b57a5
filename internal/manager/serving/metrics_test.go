package serving

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakeclient "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestSelfSignedIsRenewed(t *testing.T) {
	var s selfSigned
	first, err := s.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.get(nil); err != nil || again != first {
		t.Errorf("asked twice: another certificate, %v", err)
	}
	due, err := newSelfSigned(time.Now().Add(-selfSignedLife / 2))
	if err != nil {
		t.Fatal(err)
	}
	s.current = due
	renewed, err := s.get(nil)
	if err != nil || renewed == first || renewed == due {
		t.Errorf("at half of its life: the same certificate, %v", err)
	}
	if left := time.Until(renewed.Leaf.NotAfter); left < selfSignedLife/2 {
		t.Errorf("a new certificate is good for %v", left)
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.1.2.3:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "192.0.2.1:1": false, "localhost.example:1": false,
	} {
		if got := isLoopback(address); got != want {
			t.Errorf("%s: got %t", address, got)
		}
	}
}

// A decision is cached for a while, and invented tokens do not fill the memory.
func TestDecisionsAreCached(t *testing.T) {
	clients := fakeclient.NewClientset()
	asked := 0
	clients.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if review.Spec.Token == "away" {
			return true, nil, errors.New("the API server is away")
		}
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User.Username = "reader"
		review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"scopes": {"a"}}
		return true, review, nil
	})
	clients.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		spec := review.Spec
		review.Status.Allowed = spec.User == "reader" && len(spec.Extra["scopes"]) == 1 && spec.NonResourceAttributes.Verb == "get" && spec.NonResourceAttributes.Path == "/metrics"
		return true, review, nil
	})
	f := &accessFilter{
		tokens: clients.AuthenticationV1().TokenReviews(), reviews: clients.AuthorizationV1().SubjectAccessReviews(),
		log: testr.New(t), known: map[accessKey]decision{},
		inner: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}
	answer := func(authorization, method, path string) int {
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.Header.Set("Authorization", authorization)
		recorder := httptest.NewRecorder()
		f.ServeHTTP(recorder, request)
		return recorder.Code
	}
	for _, tt := range []struct {
		authorization, method, path string
		want, asked                 int
	}{
		{"Bearer good", "GET", "/metrics", http.StatusNoContent, 1},
		{"bearer good", "GET", "/metrics", http.StatusNoContent, 1},
		{"Bearer good", "GET", "/debug/pprof/", http.StatusForbidden, 2},
		{"Bearer good", "POST", "/metrics", http.StatusForbidden, 3},
		{"Bearer bad", "GET", "/metrics", http.StatusUnauthorized, 4},
		{"Bearer bad", "GET", "/metrics", http.StatusUnauthorized, 4},
		{"Bearer away", "GET", "/metrics", http.StatusInternalServerError, 5},
		{"Bearer away", "GET", "/metrics", http.StatusInternalServerError, 6},
		{"Basic good", "GET", "/metrics", http.StatusUnauthorized, 6},
		{"Bearer ", "GET", "/metrics", http.StatusUnauthorized, 6},
		{"", "GET", "/metrics", http.StatusUnauthorized, 6},
	} {
		if got := answer(tt.authorization, tt.method, tt.path); got != tt.want || asked != tt.asked {
			t.Errorf("%q %s %s: got %d after %d questions; want %d after %d", tt.authorization, tt.method, tt.path, got, asked, tt.want, tt.asked)
		}
	}
	for q, v := range f.known {
		v.until = time.Now()
		f.known[q] = v
	}
	if got := answer("Bearer good", "GET", "/metrics"); got != http.StatusNoContent || asked != 7 {
		t.Errorf("when its time is over: got %d after %d questions", got, asked)
	}
	for i := range 3 * decisionLimit {
		answer(fmt.Sprintf("Bearer made-up-%d", i), "GET", "/metrics")
	}
	if n := len(f.known); n > decisionLimit {
		t.Errorf("%d decisions are cached", n)
	}
}
