package apiproxy_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
)

// During a stall, a request gets no response and an open watch receives nothing. Afterwards both
// have failed, the request has not arrived, and everything works as before.
func TestStall(t *testing.T) {
	arrived, events := make(chan string, 8), make(chan string)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		if r.URL.Path != "/watched" {
			return
		}
		for {
			_ = http.NewResponseController(w).Flush() // the client may be gone
			select {
			case line := <-events:
				_, _ = fmt.Fprintln(w, line)
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(api.Close)
	p := apiproxy.New(t, &rest.Config{Host: api.URL}, 1)
	get := func(path string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return http.DefaultClient.Do(request)
	}
	response, err := get("/watched?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	events <- "before"
	if got := <-lines; got != "before" {
		t.Fatalf("the watch received %q", got)
	}

	p.Stall(true)
	events <- "meanwhile"
	failed := make(chan error, 1)
	go func() {
		response, err := get("/asked")
		if err == nil {
			err = response.Body.Close()
		}
		failed <- err
	}()
	select {
	case got := <-lines:
		t.Fatalf("the watch received %q during the stall", got)
	case err := <-failed:
		t.Fatalf("a request completed during the stall: %v", err)
	case <-time.After(200 * time.Millisecond):
	}

	p.Stall(false)
	if err := <-failed; err == nil {
		t.Error("the stalled request got a response")
	}
	if got, goesOn := <-lines; goesOn {
		t.Errorf("the stalled watch received %q", got)
	}
	response, err = get("/after")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // it is empty
	for _, want := range []string{"/watched", "/after"} {
		if got := <-arrived; got != want {
			t.Errorf("requests %s arrived, want %s", got, want)
		}
	}
}
