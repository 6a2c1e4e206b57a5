package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// The responses of kube-apiserver, of its aggregator and of the server become errors that say what happened.
func TestRefusals(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"MESSAGE","reason":"REASON","code":CODE,"details":DETAILS}`
	for _, test := range []struct {
		name, body string
		code       int
		is         func(error) bool
		says       string
	}{
		{
			"a machine that does not exist", strings.NewReplacer("MESSAGE", "no web", "REASON", "NotFound", "CODE", "404", "DETAILS", `{"name":"web"}`).Replace(status),
			http.StatusNotFound, apierrors.IsNotFound, "no web",
		},
		{
			"a cluster without the API", strings.NewReplacer("MESSAGE", "could not find the requested resource", "REASON", "NotFound", "CODE", "404", "DETAILS", `{}`).Replace(status),
			http.StatusNotFound, func(err error) bool { return errors.Is(err, ErrNotOffered) }, "does not offer",
		},
		{
			"an API server that knows no aggregation", "404 page not found\n",
			http.StatusNotFound, func(err error) bool { return errors.Is(err, ErrNotOffered) }, "does not offer",
		},
		{
			"a user without the permission", strings.NewReplacer("MESSAGE", "jane cannot", "REASON", "Forbidden", "CODE", "403", "DETAILS", `{}`).Replace(status),
			http.StatusForbidden, apierrors.IsForbidden, "jane cannot",
		},
		{"a manager that does not answer", "service unavailable\n", http.StatusServiceUnavailable, apierrors.IsServiceUnavailable, "manager"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			_, dialed := Dial(t.Context(), config, "default", "web", Console, nil)
			_, port := DialPort(t.Context(), config, "default", "web", 22)
			_, read := ReadLog(t.Context(), config, "default", "web", 10, false)
			for what, err := range map[string]error{"Dial": dialed, "DialPort": port, "ReadLog": read} {
				if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// A request has the parameters, and the path of a server whose URL has one.
func TestRequest(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.String()
		_, _ = io.WriteString(w, "log")
	}))
	defer server.Close()
	log, err := ReadLog(t.Context(), &rest.Config{Host: server.URL + "/prefix"}, "default", "web", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // it was only read
	if raw, err := io.ReadAll(log); err != nil || string(raw) != "log" {
		t.Errorf("got %q, %v", raw, err)
	}
	if want := "/prefix/apis/access.cloudnative.tw/v1alpha1/namespaces/default/virtualmachines/web/log?follow=true&tail=10"; got != want {
		t.Errorf("requested %s, want %s", got, want)
	}
}
