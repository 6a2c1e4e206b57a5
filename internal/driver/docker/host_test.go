package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// engineOf returns a client of an engine that reports this ID.
func engineOf(t *testing.T, id func() string) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/info") {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"ID": id(), "Name": "node-1"}) // the client reports the error
	}))
	t.Cleanup(server.Close)
	engine, err := client.New(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithAPIVersion("1.44"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

func TestHostIsTheEngine(t *testing.T) {
	_, host, err := identify(t.Context(), engineOf(t, func() string { return "AAAA:BBBB" }))
	if want := (backend.Host{ID: "AAAA:BBBB", Name: "node-1"}); err != nil || host != want {
		t.Errorf("got %+v, %v; want %+v", host, err, want)
	}
}

func TestEngineWithUnstableID(t *testing.T) {
	answers := 0
	engine := engineOf(t, func() string { answers++; return fmt.Sprint(answers) })
	for range 2 {
		if _, host, err := identify(t.Context(), engine); err != nil || host.ID != "name:node-1" {
			t.Errorf("got %+v, %v; want the name", host, err)
		}
	}
}

func TestAnotherEngineAtTheAddress(t *testing.T) {
	id := "first"
	engine := engineOf(t, func() string { return id })
	_, host, err := identify(t.Context(), engine)
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{engine: engine, host: host}
	if err := d.checkHost(t.Context()); err != nil {
		t.Errorf("the same engine: %v", err)
	}
	id = "second"
	if err := d.checkHost(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("another engine: %v", err)
	}
}
