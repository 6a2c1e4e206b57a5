package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestRequestsWithoutAnswerEnd(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		want      time.Duration
	}{
		{"a request", "http://api/api/v1/pods?timeoutSeconds=300", responseTimeout},
		{"a watch, whose answer may begin with its first event", "http://api/api/v1/pods?timeoutSeconds=300&watch=true", responseTimeout + 5*time.Minute},
		{"a watch that does not say how long it lasts", "http://api/api/v1/pods?watch=true", responseTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := transportFunc(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err = withResponseTimeout(hangs).RoundTrip(request)
				if !errors.Is(err, errNoResponse) || time.Since(began) != tt.want {
					t.Errorf("after %v: %v; want %v after %v", time.Since(began), err, errNoResponse, tt.want)
				}
			})
		})
	}
}

func TestAnswersMayTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside context.Context
		begins := transportFunc(func(r *http.Request) (*http.Response, error) {
			inside = r.Context()
			return &http.Response{Body: io.NopCloser(strings.NewReader(""))}, nil
		})
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := withResponseTimeout(begins).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		if inside.Err() != nil {
			t.Errorf("the answer was cut off: %v", context.Cause(inside))
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if inside.Err() == nil {
			t.Error("the context outlives the answer")
		}
	})
}
