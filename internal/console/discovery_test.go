package console_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The kinds of the API pass that can be listed, but no Secrets and nothing that is not an object of them.
func TestOtherKindsPass(t *testing.T) {
	w := newWorld(t)
	config, namespace := w.config, w.namespace
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "key"}, StringData: map[string]string{"key": "hidden-value"}}
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "note"}}
	for _, err := range []error{w.client.Create(t.Context(), secret), w.client.Create(t.Context(), note)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	v := &visitor{t: t, c: serve(t, config)}
	if got := v.send(http.MethodGet, "/discovery", nil, nil); got.code != http.StatusUnauthorized {
		t.Errorf("without a session: %d", got.code)
	}
	v.login(token(v.c.URL()))
	core := "/kubernetes/api/v1/namespaces/" + namespace
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, core + "/configmaps", http.StatusOK},
		{http.MethodGet, core + "/configmaps/note", http.StatusOK},
		{http.MethodGet, "/kubernetes/apis/rbac.authorization.k8s.io/v1/clusterroles/system:discovery", http.StatusOK},
		{http.MethodGet, "/kubernetes/apis/apps/v1/deployments", http.StatusOK},
		{http.MethodDelete, core + "/configmaps", http.StatusForbidden},
		{http.MethodPost, core + "/configmaps", http.StatusForbidden},
		{http.MethodPatch, core + "/configmaps/note", http.StatusForbidden},
		{http.MethodPut, core + "/configmaps", http.StatusForbidden},
		{http.MethodGet, core + "/secrets", http.StatusForbidden},
		{http.MethodGet, core + "/secrets/key", http.StatusForbidden},
		{http.MethodPut, core + "/secrets/key", http.StatusForbidden},
		{http.MethodDelete, core + "/secrets/key", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/secrets", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/watch/secrets", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/watch/configmaps", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/namespaces/" + namespace + "/finalize", http.StatusForbidden},
		{http.MethodPut, "/kubernetes/api/v1/namespaces/" + namespace + "/finalize", http.StatusForbidden},
		{http.MethodGet, core + "/pods/a/exec", http.StatusForbidden},
		{http.MethodGet, core + "/services/a/proxy", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/api/v1/nodes/a/proxy", http.StatusForbidden},
		{http.MethodPost, core + "/serviceaccounts/default/token", http.StatusForbidden},
		{http.MethodPut, "/kubernetes/apis/authentication.k8s.io/v1/tokenreviews/a", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/apis/authorization.k8s.io/v1/subjectaccessreviews", http.StatusForbidden},
		{http.MethodGet, "/kubernetes/apis/nothing.example.com/v1/things", http.StatusForbidden},
		{http.MethodDelete, core + "/configmaps/note", http.StatusOK},
	} {
		got := v.send(tt.method, tt.path, nil, nil)
		if got.code != tt.want || strings.Contains(got.body, "hidden-value") || strings.Contains(got.body, "aGlkZGVuLXZhbHVl") {
			t.Errorf("%s %s: %d %.200s, want %d", tt.method, tt.path, got.code, got.body, tt.want)
		}
	}
	var answer struct {
		Kinds []struct{ Group, Version, Plural, Kind string }
	}
	if err := json.Unmarshal([]byte(v.send(http.MethodGet, "/discovery", nil, nil).body), &answer); err != nil {
		t.Fatal(err)
	}
	has := func(group, plural string) bool {
		return slices.ContainsFunc(answer.Kinds, func(k struct{ Group, Version, Plural, Kind string }) bool {
			return k.Group == group && k.Plural == plural
		})
	}
	if !has("", "configmaps") || !has("apps", "deployments") || has("", "secrets") || has("", "bindings") || has("cloudnative.tw", "virtualmachines") {
		t.Errorf("the kinds are %v", answer.Kinds)
	}
}

// Watches of Secrets do not pass either.
func TestNoWatchOfSecrets(t *testing.T) {
	v := &visitor{t: t, c: serve(t, env.Config(t))}
	v.login(token(v.c.URL()))
	conn, err := v.dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for i, path := range []string{"/api/v1/secrets?watch=1", "/api/v1/watch/secrets?watch=1", "/api/v1/namespaces/default/secrets?watch=1&fieldSelector=metadata.name%3Dkey"} {
		command, err := json.Marshal(map[string]any{"id": i + 1, "path": path})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(t.Context(), websocket.MessageText, command); err != nil {
			t.Fatal(err)
		}
		if m := next(t, conn); m.End == nil || m.End.Code != http.StatusForbidden {
			t.Errorf("%s: %+v", path, m)
		}
	}
}
