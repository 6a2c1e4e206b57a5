package launcher

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

const token = "a-token"

// manager returns a client as the manager has it.
func manager() *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: transport, Timeout: harness.WaitTimeout} // also for connections that a test reads
}

// call requests a connection of a launcher.
func (m *machine) call(client *http.Client, path, token string, body io.Reader) *http.Response {
	m.Helper()
	request, err := http.NewRequestWithContext(m.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d%s", m.definition.ReadyPort, path), body)
	if err != nil {
		m.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// A machine has its console and its ports for the manager, and those of its Pod.
func TestAccess(t *testing.T) {
	m := newMachine(t)
	port := int32(harness.FreeAddress(t).Port())
	open := fmt.Sprint(DialPath, "?port=", port)
	for name, content := range map[string]string{
		TokenFile: token, UserDataFile: fmt.Sprintf("#cloud-config\nwrite_files: [{path: /www/hello, content: it serves}]\nbootcmd: [busybox httpd -p %d -h /www]\n", port),
	} {
		if err := os.WriteFile(filepath.Join(m.dirs.Seed, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.definition.Ports = []Port{{Port: int32(harness.FreeAddress(t).Port()), UDP: true}}
	m.run()
	m.awaitReady()
	client := manager()
	harness.Eventually(t, "the guest has its address, and serves the port", func() bool {
		return m.call(client, open, token, nil).StatusCode == http.StatusOK
	})
	for name, test := range map[string]struct {
		client      *http.Client
		path, token string
		want        int
	}{
		"without the token":                 {client, ConsolePath, "", http.StatusForbidden},
		"with another token":                {client, open, token + "x", http.StatusForbidden},
		"without HTTP/2":                    {http.DefaultClient, ConsolePath, token, http.StatusHTTPVersionNotSupported},
		"without a port":                    {client, DialPath, token, http.StatusBadRequest},
		"a port that the guest has not":     {client, DialPath + "?port=9", token, http.StatusBadGateway},
		"a port of the guest":               {client, open, token, http.StatusOK},
		"a port of the guest, another time": {client, open, token, http.StatusOK},
	} {
		if response := m.call(test.client, test.path, test.token, nil); response.StatusCode != test.want {
			raw, _ := io.ReadAll(response.Body) // a message
			t.Errorf("%s: %s: %s", name, response.Status, raw)
		}
	}
	web := m.call(client, open, token, strings.NewReader("GET /hello HTTP/1.0\r\n\r\n"))
	if raw, err := io.ReadAll(web.Body); err != nil || !bytes.HasSuffix(raw, []byte("it serves")) {
		t.Errorf("the guest answers %q, %v", raw, err)
	}
	testPorts(m, port)
	output, input := io.Pipe()
	console := m.call(client, ConsolePath, token, output)
	if _, err := input.Write([]byte("\recho $((6*7))x\r")); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	for block := make([]byte, 1024); !strings.Contains(seen.String(), "42x"); {
		n, err := console.Body.Read(block)
		seen.Write(block[:n])
		if err != nil {
			t.Fatalf("after %q: %v", seen.String(), err)
		}
	}
	m.stop()
	if _, err := io.Copy(io.Discard, console.Body); err != nil {
		t.Errorf("the console ends with %v", err)
	}
	m.awaitEnd()
}

// A machine that is paused goes on when it is resumed, and ends at once when it is stopped: it cannot power off.
func TestLongPause(t *testing.T) {
	m := newMachine(t)
	m.token()
	m.run()
	m.awaitReady()
	client := manager()
	post := func(path string) {
		t.Helper()
		if got := m.call(client, path, token, nil); got.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, got.Status)
		}
	}
	answer := func() string {
		t.Helper()
		raw, err := io.ReadAll(m.call(client, DialPath+"?port=9", token, nil).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	harness.Eventually(t, "the guest has its address", func() bool { return strings.Contains(answer(), "refuses") })
	post(PausePath)
	if got := answer(); !strings.Contains(got, "does not answer") {
		t.Errorf("while it is paused: %s", got)
	}
	post(ResumePath)
	harness.Eventually(t, "the guest answers again", func() bool { return strings.Contains(answer(), "refuses") })
	post(PausePath)
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost {
		t.Errorf("ended as %+v", ended)
	}
}

// A machine that is paused ends at once, before the grace period is over.
func TestPausedMachineIsStopped(t *testing.T) {
	fakeqemu.Install(t)
	m := newMachine(t)
	m.token()
	m.run()
	m.awaitReady()
	if got := m.call(manager(), PausePath, token, nil); got.StatusCode != http.StatusOK {
		t.Fatalf("the pause: %s", got.Status)
	}
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost {
		t.Errorf("ended as %+v", ended)
	}
}

// Other Pods reach the port, for the readiness of the guest, and the guest reaches it from the loopback address.
func TestAccessIsForTheManager(t *testing.T) {
	dir := t.TempDir()
	a := &access{dirs: Dirs{Seed: dir}}
	serve := a.guard(func(http.ResponseWriter, *http.Request) {})
	status := func(from, authorization string) int {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, ConsolePath, nil)
		request.RemoteAddr, request.ProtoMajor = from, 2
		request.Header.Set("Authorization", authorization)
		recorder := httptest.NewRecorder()
		serve(recorder, request)
		return recorder.Code
	}
	if got := status("127.0.0.1:1", "Bearer "); got != http.StatusForbidden {
		t.Errorf("without a token in the Secret: %d", got)
	}
	if err := os.WriteFile(filepath.Join(dir, TokenFile), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from, authorization string
		want                int
	}{
		{"127.0.0.1:1", "Bearer " + token, http.StatusOK},
		{"[::1]:1", "Bearer " + token, http.StatusOK},
		{"10.0.0.5:1", "Bearer " + token, http.StatusForbidden},
		{"127.0.0.1:1", "Bearer " + token[1:], http.StatusForbidden},
		{"127.0.0.1:1", token, http.StatusForbidden},
		{"127.0.0.1:1", "", http.StatusForbidden},
	} {
		if got := status(test.from, test.authorization); got != test.want {
			t.Errorf("from %s with %q: %d, want %d", test.from, test.authorization, got, test.want)
		}
	}
}
