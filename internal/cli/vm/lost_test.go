package vm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// A user without the permission is not told that there is a connection.
func TestConsoleThatIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not for you","code":403}`)
	}))
	defer server.Close()
	var notices bytes.Buffer
	c := &console{
		machines: newMachines(nil, server.URL), name: "web",
		in: strings.NewReader(""), out: io.Discard, notices: &notices,
	}
	if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), "not for you") {
		t.Errorf("got %v, want the refusal", err)
	}
	if notices.Len() > 0 {
		t.Errorf("the user is told %q", notices.String())
	}
}

// Each loss of the connection is told once.
func TestConsoleThatIsLost(t *testing.T) {
	var notices bytes.Buffer
	c := &console{name: "web", notices: &notices, eol: "\n"}
	away := errors.New("away")
	c.lost(away)
	c.lost(away)
	c.connected, c.said = true, false
	c.lost(away)
	c.lost(away)
	const want = "Not connected to the console of web yet, trying again; Ctrl-] ends it: away\n" +
		"\nThe connection is lost; connecting again. Ctrl-] ends it.\n"
	if notices.String() != want {
		t.Errorf("got %q, want %q", notices.String(), want)
	}
}

// A log whose connection is lost says so, unless the user has ended it.
func TestLogThatIsLost(t *testing.T) {
	var out bytes.Buffer
	lost := io.MultiReader(strings.NewReader("a line\n"), iotest.ErrReader(io.ErrUnexpectedEOF))
	err := printLog(t.Context(), &out, lost, "web")
	if err == nil || err.Error() != "the connection to the log of web is lost, as when the manager restarts: run the command again" {
		t.Errorf("got %v", err)
	}
	if out.String() != "a line\n" {
		t.Errorf("printed %q", out.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := printLog(ended, io.Discard, iotest.ErrReader(context.Canceled), "web"); err != nil {
		t.Errorf("ended by the user: %v", err)
	}
}
