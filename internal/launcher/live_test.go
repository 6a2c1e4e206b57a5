package launcher

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestLiveChanges(t *testing.T) {
	fakeqemu.Install(t)
	testLiveChanges(t, false)
}

// A guest sees that its disk grows, and that its memory shrinks and comes back.
func TestLongLiveChanges(t *testing.T) { testLiveChanges(t, true) }

// testLiveChanges changes a machine that runs. Its guest says what it sees, if it does more than its agent.
func testLiveChanges(t *testing.T, sees bool) {
	t.Helper()
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes = 64 << 20
	m.run()
	m.awaitReady()
	client := manager()
	output, input := io.Pipe()
	t.Cleanup(func() { _ = input.Close() })
	console := m.call(client, ConsolePath, token, output)
	var seen bytes.Buffer
	patience := time.AfterFunc(harness.WaitTimeout, func() { _ = console.Body.Close() })
	defer patience.Stop()
	shows := func(command, text string) {
		t.Helper()
		if !sees {
			return
		}
		if _, err := fmt.Fprintf(input, "\r%s\r", command); err != nil {
			t.Fatal(err)
		}
		for block := make([]byte, 1024); !strings.Contains(seen.String(), text); {
			n, err := console.Body.Read(block)
			seen.Write(block[:n])
			if err != nil {
				t.Fatalf("after %q: %v", seen.String(), err)
			}
		}
	}
	change := func(want int, path string, bytes int64) {
		t.Helper()
		if got := m.call(client, fmt.Sprintf("%s%s=%d", path, BytesParameter, bytes), token, nil); got.StatusCode != want {
			raw, _ := io.ReadAll(got.Body) // a message
			t.Errorf("%s %d: %s: %s", path, bytes, got.Status, raw)
		}
	}
	const root, memory = GrowPath + "?disk=root&", MemoryPath + "?"
	change(http.StatusOK, root, 128<<20)
	change(http.StatusOK, root, 96<<20) // it does not shrink
	shows("echo disk-$(cat /sys/block/vda/size)", "disk-262144")
	change(http.StatusServiceUnavailable, root, math.MaxInt64) // no file system is that large
	change(http.StatusServiceUnavailable, GrowPath+"?disk=other&", 128<<20)
	change(http.StatusBadRequest, root, 0)

	shows("free() { sed -n 's/MemFree: *\\(.*\\) kB/\\1/p' /proc/meminfo; }; before=$(free); echo free-$((40+2))", "free-42")
	change(http.StatusOK, memory, m.definition.MemoryBytes-48<<20)
	shows("until [ $((before-$(free))) -gt 40000 ]; do sleep 0.1; done; echo less-$((40+2))", "less-42")
	change(http.StatusOK, memory, m.definition.MemoryBytes)
	shows("until [ $((before-$(free))) -lt 20000 ]; do sleep 0.1; done; echo back-$((40+2))", "back-42")
	m.stop()
	m.awaitEnd()
	if size, err := virtualSize(filepath.Join(m.dirs.Disk, "root.qcow2")); err != nil || size != 128<<20 {
		t.Errorf("the disk has %d bytes, %v", size, err)
	}
}

// testPorts changes the ports of a machine that runs, and serves it at this port. A port of the Pod that is in use is refused.
func testPorts(m *machine, port int32) {
	t := m.T
	t.Helper()
	client, page := manager(), &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	set := func(want int, ports ...string) {
		t.Helper()
		path := PortsPath + "?" + url.Values{PortParameter: ports}.Encode()
		if got := m.call(client, path, token, nil); got.StatusCode != want {
			raw, _ := io.ReadAll(got.Body) // a message
			t.Errorf("%s: %s: %s", path, got.Status, raw)
		}
	}
	serves := func() bool {
		response, err := page.Get(fmt.Sprintf("http://127.0.0.1:%d/hello", port))
		if err != nil {
			return false
		}
		raw, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return err == nil && string(raw) == "it serves"
	}
	if serves() {
		t.Error("the port is open before it is one of the machine")
	}
	tcp := Port{Port: port}.String()
	set(http.StatusOK, tcp)
	harness.Eventually(t, "the port is open", serves)
	set(http.StatusOK, tcp, m.definition.Ports[0].String())
	set(http.StatusBadGateway, tcp, Port{Port: m.definition.ReadyPort}.String())
	set(http.StatusBadRequest, "tcp/0")
	set(http.StatusBadRequest, "22")
	if !serves() {
		t.Error("the port is closed after requests that were refused")
	}
	set(http.StatusOK)
	if serves() {
		t.Error("the port is open after it was removed")
	}
}

// Memory with which the default guest cannot boot is refused, so that the machine still starts when it was off.
func TestTooLittleMemory(t *testing.T) {
	for name, test := range map[string]struct {
		minimum, bytes int64
		want           int
	}{
		"too little":                {96 << 20, 96<<20 - 1, http.StatusBadGateway},
		"enough":                    {96 << 20, 96 << 20, http.StatusOK},
		"of a guest that can do it": {0, 1 << 20, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			conn, commands := fakeqemu.Monitor(t)
			l := newLauncher(Definition{}, Dirs{}, nil, io.Discard)
			l.access.monitor = func() *qmp.Client { return conn }
			l.ready.setMinimumMemory(test.minimum)
			response := httptest.NewRecorder()
			l.serveMemory(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("%s?%s=%d", MemoryPath, BytesParameter, test.bytes), nil))
			if ballooned := slices.Contains(commands(), "balloon"); response.Code != test.want || ballooned != (test.want == http.StatusOK) {
				t.Errorf("status %d: %s, ballooned: %t", response.Code, response.Body, ballooned)
			}
		})
	}
}
