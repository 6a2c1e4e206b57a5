package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/cli/console"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

func TestInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--port=70000"}, {"--port=-1"}, {"--print-url", "--port=1"}, {"--kubeconfig="}, {"--context=a", "--data-dir=/tmp/a"}, {"--kubeconfig=a", "--ephemeral"}, {"argument"},
	} {
		cmd := console.New()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetFlagErrorFunc(nil)
		err := cmd.ExecuteContext(t.Context())
		if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) && !strings.Contains(fmt.Sprint(err), "must not be empty") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestNothingRuns(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"start it with `keelson up --data-dir " + dir: {"--data-dir", dir},
		"there is no kubeconfig":                      {"--kubeconfig", filepath.Join(dir, "missing")},
		`context "missing" does not exist`:            {"--context", "missing", "--kubeconfig", kubeconfig(t, "https://127.0.0.1:1", "true")},
	} {
		cmd := console.New()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// kubeconfig writes a kubeconfig whose credentials come from a shell command.
func kubeconfig(t *testing.T, server, command string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: production, context: {cluster: c, user: u}}]
current-context: production
users:
- name: u
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, %q], interactiveMode: Never}
`, server, command)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The console of a cluster whose kubeconfig runs a program for its credentials.
func TestCredentialPlugin(t *testing.T) {
	authorization := make(chan string, 1)
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(api.Close)
	path := kubeconfig(t, api.URL, `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-the-plugin"}}'`)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	trusting := bytes.Replace(raw, []byte("{server:"), []byte("{insecure-skip-tls-verify: true, server:"), 1)
	if err := os.WriteFile(path, trusting, 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var stderr bytes.Buffer
	cmd := console.New()
	cmd.SetArgs([]string{"--kubeconfig", path})
	cmd.SetOut(in)
	cmd.SetErr(&stderr)
	var running sync.WaitGroup
	running.Go(func() {
		err := cmd.ExecuteContext(ctx)
		_ = in.CloseWithError(err)
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, token, found := strings.Cut(strings.TrimSpace(line), "/#token=")
	if !found {
		t.Fatalf("the URL is %q", line)
	}
	send := func(method, path, body string, header http.Header) *http.Response {
		request, err := http.NewRequestWithContext(ctx, method, address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = header
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	login := send(http.MethodPost, "/session", fmt.Sprintf(`{"token":%q}`, token), http.Header{"Origin": {address}})
	var session struct{ Key string }
	if err := json.NewDecoder(login.Body).Decode(&session); err != nil {
		t.Fatal(err)
	}
	response := send(http.MethodGet, "/kubernetes/version", "", http.Header{"Cookie": {login.Header.Get("Set-Cookie")}, "Keelson-Console": {session.Key}})
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s", response.Status)
	}
	if got := <-authorization; got != "Bearer of-the-plugin" {
		t.Errorf("the API got %q", got)
	}
}
