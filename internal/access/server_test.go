package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// Only the aggregator's certificate makes the headers with the user count.
func TestForgedIdentitiesAreRefused(t *testing.T) {
	f := newFixture(t, testLimits())
	for _, test := range []struct {
		name        string
		certificate *tls.Certificate
		header      http.Header
		want        int
	}{
		{"no certificate", nil, identity("system:admin"), http.StatusUnauthorized},
		{"a certificate that nobody signed", f.self, identity("system:admin"), http.StatusUnauthorized},
		{"the certificate of somebody else", f.other, identity("system:admin"), http.StatusUnauthorized},
		{"no user", f.front, http.Header{}, http.StatusUnauthorized},
		{"the aggregator", f.front, identity("jane"), http.StatusOK},
	} {
		for _, url := range []string{f.path("log"), f.http.URL + "/apis/" + groupVersion} {
			code, body := f.get(url, test.certificate, test.header)
			if code != test.want {
				t.Errorf("%s: %s answers %d, %s", test.name, url, code, body)
			}
			if code != http.StatusOK && int(statusOf(t, body).Code) != code {
				t.Errorf("%s: a Status of another code: %s", test.name, body)
			}
		}
	}
}

func TestIdentity(t *testing.T) {
	trusted := &trust{user: []string{"X-Remote-User"}, uid: []string{"X-Remote-Uid"}, groups: []string{"X-Remote-Group"}, extra: []string{"X-Remote-Extra-"}}
	header := identity("jane")
	header.Set("X-Remote-Uid", "7")
	got := trusted.identify(header)
	if got.Name != "jane" || got.UID != "7" || strings.Join(got.Groups, ",") != "a,b" || len(got.Extra["scopes/x"]) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	f := newFixture(t, testLimits())
	upgrade := identity("jane")
	upgrade.Set("Connection", "Upgrade")
	upgrade.Set("Upgrade", "websocket")
	for _, test := range []struct {
		rest   string
		header http.Header
		off    bool
		want   int
	}{
		{"log?tail=x", identity("jane"), false, http.StatusBadRequest},
		{"log?tail=-1", identity("jane"), false, http.StatusBadRequest},
		{"log?follow=x", identity("jane"), false, http.StatusBadRequest},
		{"display", identity("jane"), false, http.StatusNotFound},
		{"screen", identity("jane"), false, http.StatusBadRequest},
		{"screen", upgrade, true, http.StatusConflict},
		{"screenshot", identity("jane"), true, http.StatusConflict},
		{"console", identity("jane"), false, http.StatusBadRequest},
		{"console?write=x", upgrade, false, http.StatusBadRequest},
		{"console", upgrade, true, http.StatusConflict},
		{"portforward", upgrade, false, http.StatusBadRequest},
		{"portforward?port=0", upgrade, false, http.StatusBadRequest},
		{"portforward?port=65536", upgrade, false, http.StatusBadRequest},
		{"portforward?port=22", upgrade, true, http.StatusConflict},
		{"portforward?port=23", upgrade, false, http.StatusServiceUnavailable},
		{"../other/log", identity("jane"), false, http.StatusNotFound},
	} {
		f.m.set(func() { f.m.off = test.off })
		code, body := f.get(strings.Replace(f.path(test.rest), "web/../other", "other", 1), f.front, test.header)
		if status := statusOf(t, body); code != test.want || int(status.Code) != code || status.Details == nil || status.Details.Name == "" {
			t.Errorf("%s: got %d, want %d: %s", test.rest, code, test.want, body)
		}
	}
	f.settled(runtime.NumGoroutine())
}

// A machine that is off is started, one that sleeps is woken.
func TestRefusalOfAMachineThatIsOff(t *testing.T) {
	for state, verb := range map[backend.State]string{backend.StateStopped: "start it first", backend.StateAsleep: "wake it first"} {
		f := newFixture(t, testLimits())
		f.m.set(func() { f.m.off, f.m.state = true, state })
		if code, body := f.get(f.path("screenshot"), f.front, identity("jane")); code != http.StatusConflict || !strings.Contains(body, verb) {
			t.Errorf("%s: got %d %s, want %q", state, code, body, verb)
		}
	}
}

func TestLog(t *testing.T) {
	f := newFixture(t, testLimits())
	f.m.set(func() { f.m.log = "one\ntwo\n" })
	if code, body := f.get(f.path("log"), f.front, identity("jane")); code != http.StatusOK || body != "one\ntwo\n" {
		t.Errorf("got %d, %q", code, body)
	}
}

func TestUsage(t *testing.T) {
	f := newFixture(t, testLimits())
	nan := float32(math.NaN())
	f.m.set(func() {
		f.m.usage = []backend.UsageSample{
			{UnixMilli: 1000, CPUPercent: 12.345, MemoryPercent: 50, ResidentBytes: 1 << 20, GuestBytes: nan, DiskRead: nan, DiskWritten: nan, NetworkReceived: nan, NetworkTransmitted: nan},
			{UnixMilli: 16000, CPUPercent: nan, MemoryPercent: nan, DiskRead: 1.6},
		}
	})
	code, body := f.get(f.path("usage"), f.front, identity("jane"))
	var got client.MachineUsage
	f.do(json.Unmarshal([]byte(body), &got))
	want := client.MachineUsage{
		TypeMeta:        metav1.TypeMeta{APIVersion: "access.cloudnative.tw/v1alpha1", Kind: "MachineUsage"},
		ObjectMeta:      metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		IntervalSeconds: 15, UnixMilliseconds: []int64{1000, 16000}, CPUPercent: client.Series{12.3, math.NaN()},
		MemoryPercent: client.Series{50, math.NaN()}, ResidentBytes: client.Series{1 << 20, 0}, GuestMemoryBytes: client.Series{math.NaN(), 0},
		DiskReadBytesPerSecond: client.Series{math.NaN(), 2}, DiskWrittenBytesPerSecond: client.Series{math.NaN(), 0},
		NetworkReceivedBytesPerSecond: client.Series{math.NaN(), 0}, NetworkTransmittedBytesPerSecond: client.Series{math.NaN(), 0},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" || code != http.StatusOK {
		t.Errorf("got %d, %s\n%s", code, body, diff)
	}
	f.m.set(func() { f.m.usage = nil })
	if _, body := f.get(f.path("usage"), f.front, identity("jane")); !strings.Contains(body, `"unixMilliseconds":[]`) || !strings.Contains(body, `"cpuPercent":[]`) {
		t.Errorf("a machine without samples: %s", body)
	}
	f.m.set(func() { f.m.tooMany = true })
	if code, body := f.get(f.path("usage"), f.front, identity("jane")); code != http.StatusServiceUnavailable {
		t.Errorf("a machine whose usage is not kept: %d, %s", code, body)
	}
}

// The first message says who writes; then comes earlier output, and then what the machine sends.
func TestConsole(t *testing.T) {
	f := newFixture(t, testLimits())
	f.m.set(func() { f.m.log = strings.Repeat("x", replaySize) + "earlier" })
	before := runtime.NumGoroutine()
	first := f.open("console")
	if notice := f.notice(first); notice != (client.Notice{Writer: true}) {
		t.Errorf("the first message: %+v", notice)
	}
	if got := f.output(first, replaySize); len(got) != replaySize || !strings.HasSuffix(got, "xearlier") {
		t.Errorf("the replay has %d bytes and ends with %q", len(got), got[len(got)-10:])
	}
	guest := f.m.console(t)
	f.typed(first, "ls\r")
	f.receives("ls\r")
	_, err := guest.Write([]byte("now"))
	f.do(err)
	if got := f.output(first, 3); got != "now" {
		t.Errorf("got %q", got)
	}
	viewer := f.open("console?write=false")
	if notice := f.notice(viewer); notice.Writer {
		t.Errorf("the first message to a viewer: %+v", notice)
	}
	if got := f.output(viewer, replaySize); !strings.HasSuffix(got, "earliernow") {
		t.Errorf("the replay of a viewer ends with %q", got[len(got)-10:])
	}
	f.typed(viewer, "ignored")
	f.typed(first, "x")
	f.receives("x")
	_ = first.Close(websocket.StatusNormalClosure, "")
	_ = viewer.Close(websocket.StatusNormalClosure, "")
	f.settled(before)
}

func (f *fixture) typed(conn *websocket.Conn, text string) {
	f.Helper()
	f.do(conn.Write(f.Context(), websocket.MessageBinary, []byte(text)))
}

// receives checks what the guest gets.
func (f *fixture) receives(want string) {
	f.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(f.m.console(f), got); err != nil || string(got) != want {
		f.Fatalf("the guest got %q, %v, want %q", got, err, want)
	}
}

// The newest session that asks for it writes; the one before it shows the console, and writes again afterwards.
func TestConsoleIsTakenOver(t *testing.T) {
	f := newFixture(t, testLimits())
	first := f.open("console")
	f.notice(first)
	second := f.open("console?write=true")
	if notice := f.notice(second); !notice.Writer {
		t.Errorf("the first message to the second writer: %+v", notice)
	}
	if notice := f.notice(first); notice.Writer || !strings.Contains(notice.Notice, "taken over") {
		t.Errorf("the notice to the first writer: %+v", notice)
	}
	shown := make(chan string, 1)
	go func() { // the pong needs a reader
		_, message, err := first.Read(f.Context())
		shown <- fmt.Sprint(string(message), err)
	}()
	f.typed(first, "ignored")
	f.do(first.Ping(f.Context())) // it has arrived, so it does not count as typed after the second one has left
	f.typed(second, "second")
	f.receives("second")
	_, err := f.m.console(t).Write([]byte("output"))
	f.do(err)
	if got := <-shown; got != "output<nil>" {
		t.Errorf("the first one got %q", got)
	}
	if got := f.output(second, 6); got != "output" {
		t.Errorf("the second one got %q", got)
	}
	_ = second.Close(websocket.StatusNormalClosure, "")
	if notice := f.notice(first); !notice.Writer || notice.Notice == "" {
		t.Errorf("the notice after the second writer has left: %+v", notice)
	}
	f.typed(first, "first")
	f.receives("first")
}

// A session continues when the machine restarts.
func TestConsoleOfAMachineThatRestarts(t *testing.T) {
	f := newFixture(t, testLimits())
	conn := f.open("console")
	f.notice(conn)
	guest := f.m.console(t)
	f.m.set(func() { f.m.off, f.m.guest = true, nil })
	_ = guest.Close()
	if notice := f.notice(conn); !strings.Contains(notice.Notice, "off") || !notice.Writer {
		t.Errorf("the notice of a machine that is off: %+v", notice)
	}
	f.m.set(func() { f.m.off = false })
	if notice := f.notice(conn); !strings.Contains(notice.Notice, "is on") {
		t.Errorf("the notice of a machine that is on: %+v", notice)
	}
	f.typed(conn, "again")
	f.receives("again")
}

// A viewer that does not read is dropped; the others see everything, and the guest does not wait.
func TestStalledViewer(t *testing.T) {
	limits := testLimits()
	// The other viewer has to keep up on a busy host.
	limits.MaxLag, limits.Stall = 5*time.Second, 20*time.Second
	f := newFixture(t, limits)
	before := runtime.NumGoroutine()
	stalled := f.open("console?write=false")
	reader := f.open("console")
	const size = 32 << 20 // more than sockets and the ring hold
	sent := make(chan error, 1)
	guest := f.m.console(t)
	go func() {
		_, err := io.Copy(guest, io.LimitReader(endless{}, size))
		sent <- err
	}()
	if got := f.output(reader, size); len(got) != size {
		t.Errorf("got %d bytes", len(got))
	}
	f.do(<-sent)
	if code := f.closed(stalled); code != client.CloseSlow && code != -1 { // its buffers may have no room for the reason
		t.Errorf("the stalled viewer was closed with %d", code)
	}
	f.typed(reader, "x")
	f.receives("x")
	_ = reader.CloseNow()
	f.settled(before)
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

// A client that floods a guest which does not read, and then vanishes, leaves nothing behind.
func TestFloodingClientVanishes(t *testing.T) {
	f := newFixture(t, testLimits())
	before := runtime.NumGoroutine()
	conn := f.open("console")
	f.notice(conn)
	viewer := f.open("console?write=false")
	f.notice(viewer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	block := bytes.Repeat([]byte("y"), 1<<20)
	for conn.Write(ctx, websocket.MessageBinary, block) == nil {
		continue // until it can take no more
	}
	_, err := f.m.console(t).Write([]byte("output"))
	f.do(err)
	if got := f.output(viewer, 6); got != "output" {
		t.Errorf("got %q", got)
	}
	_ = conn.CloseNow()
	_ = viewer.CloseNow()
	f.settled(before)
}

func TestPortForward(t *testing.T) {
	f := newFixture(t, testLimits())
	before := runtime.NumGoroutine()
	conn := f.open("portforward?port=22")
	f.typed(conn, "hello")
	var guest io.ReadWriteCloser
	f.m.set(func() { guest = f.m.port })
	got := make([]byte, 5)
	if _, err := io.ReadFull(guest, got); err != nil || string(got) != "hello" {
		t.Errorf("the guest got %q, %v", got, err)
	}
	_, err := guest.Write([]byte("welcome"))
	f.do(err)
	if got := f.output(conn, 7); got != "welcome" {
		t.Errorf("got %q", got)
	}
	_ = guest.Close()
	if code := f.closed(conn); code != websocket.StatusNormalClosure {
		t.Errorf("the end of the guest closes with %d", code)
	}
	f.settled(before)
}

// A client ends its side, the guest learns of it, and its answer arrives.
func TestPortForwardIsHalfClosed(t *testing.T) {
	f := newFixture(t, testLimits())
	f.m.set(func() { f.m.tcp = true })
	before := runtime.NumGoroutine()
	conn, _, err := websocket.Dial(t.Context(), f.path("portforward?port=22"), &websocket.DialOptions{ //nolint:bodyclose // it is the connection's
		HTTPClient: f.client(f.front), HTTPHeader: identity("jane"), Subprotocols: []string{client.HalfClose},
	})
	f.do(err)
	if conn.Subprotocol() != client.HalfClose {
		t.Fatalf("the server chose %q", conn.Subprotocol())
	}
	f.typed(conn, "question")
	f.do(conn.Write(t.Context(), websocket.MessageText, nil))
	var guest io.ReadWriteCloser
	f.m.set(func() { guest = f.m.port })
	if got, err := io.ReadAll(guest); err != nil || string(got) != "question" { // until the end
		t.Errorf("the guest got %q, %v", got, err)
	}
	_, err = guest.Write([]byte("answer"))
	f.do(errors.Join(err, guest.Close()))
	if got := f.output(conn, 6); got != "answer" {
		t.Errorf("got %q", got)
	}
	if code := f.closed(conn); code != websocket.StatusNormalClosure {
		t.Errorf("the end of the guest closes with %d", code)
	}
	f.settled(before)

	plain := f.open("portforward?port=22") // an earlier client
	if plain.Subprotocol() != "" {
		t.Errorf("the server chose %q", plain.Subprotocol())
	}
	f.do(plain.Write(t.Context(), websocket.MessageText, nil))
	if code := f.closed(plain); code != websocket.StatusUnsupportedData {
		t.Errorf("a text message of an earlier client closes with %d", code)
	}
}

func TestScreen(t *testing.T) {
	f := newFixture(t, testLimits())
	before := runtime.NumGoroutine()
	code, body := f.get(f.path("screenshot"), f.front, identity("jane"))
	if code != http.StatusOK || body != "png" {
		t.Errorf("the screenshot: %d, %s", code, body)
	}
	conn := f.open("screen")
	var machine io.ReadWriteCloser
	f.m.set(func() { machine = f.m.screen })
	go func() { _, _ = machine.Write([]byte("RFB 003.008\n")) }()
	if got := f.output(conn, 12); got != "RFB 003.008\n" {
		t.Errorf("got %q", got)
	}
	f.typed(conn, "x")
	got := make([]byte, 1)
	if _, err := io.ReadFull(machine, got); err != nil || got[0] != 'x' {
		t.Errorf("the machine got %q, %v", got, err)
	}
	_ = machine.Close()
	if code := f.closed(conn); code != websocket.StatusNormalClosure {
		t.Errorf("a machine that is powered off closes with %d", code)
	}
	f.settled(before)
}

func TestSessionsEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits func(*Limits)
		cause  func(*fixture)
		want   websocket.StatusCode
	}{
		{"the permission is withdrawn", func(l *Limits) { l.Review = 10 * time.Millisecond }, func(f *fixture) { f.m.set(func() { f.m.allowed = false }) }, client.CloseForbidden},
		{"the machine is deleted", func(*Limits) {}, func(f *fixture) { f.m.set(func() { f.m.gone = true }) }, client.CloseGone},
		{"the machine is another one", func(*Limits) {}, func(f *fixture) { f.m.set(func() { f.m.id.UID = "2" }) }, client.CloseGone},
		{"nothing is sent", func(l *Limits) { l.Idle = 50 * time.Millisecond }, func(*fixture) {}, client.CloseIdle},
		{"the manager stops", func(*Limits) {}, func(f *fixture) { go f.server.Close() }, websocket.StatusGoingAway},
	} {
		t.Run(test.name, func(t *testing.T) {
			limits := testLimits()
			test.limits(&limits)
			f := newFixture(t, limits)
			before := runtime.NumGoroutine()
			console, port, screen := f.open("console"), f.open("portforward?port=22"), f.open("screen")
			test.cause(f)
			for kind, conn := range map[string]*websocket.Conn{client.Console: console, client.PortForward: port, client.Screen: screen} {
				if got := f.closed(conn); got != test.want {
					t.Errorf("%s: closed with %d, want %d", kind, got, test.want)
				}
			}
			f.settled(before)
		})
	}
}

// The limits apply before a machine is woken: nobody can keep it awake, or requests waiting, beyond them.
func TestLimitsOfSessionsWithMachineAsleep(t *testing.T) {
	for _, rest := range []string{"console", "portforward?port=22", "screen", "screenshot"} {
		t.Run(rest, func(t *testing.T) {
			limits := testLimits()
			limits.PerMachine = 2
			f := newFixture(t, limits)
			waking := make(chan struct{})
			f.m.set(func() { f.m.waking = waking })
			attended := func() (attended, using int) {
				f.m.mu.Lock()
				defer f.m.mu.Unlock()
				return f.m.attended, f.m.using
			}
			header := identity("jane")
			header.Set("Upgrade", "websocket")
			codes := make(chan int, limits.PerMachine)
			for range limits.PerMachine {
				go func() {
					code, _, err := f.request(f.path(rest), f.front, header)
					if err != nil {
						t.Error(err)
					}
					codes <- code
				}()
			}
			harness.Eventually(t, "it is being woken by both", func() bool { n, _ := attended(); return n == limits.PerMachine })
			code, body := f.get(f.path(rest), f.front, header)
			if code != http.StatusTooManyRequests || !strings.Contains(statusOf(t, body).Message, "2 sessions") {
				t.Errorf("one too many: got %d, %s", code, body)
			}
			if n, _ := attended(); n != limits.PerMachine {
				t.Errorf("the machine was woken for %d sessions, want %d", n, limits.PerMachine)
			}
			f.server.Close() // it ends the sessions that wait
			for range limits.PerMachine {
				if code := <-codes; code != http.StatusServiceUnavailable {
					t.Errorf("a session that waits when the manager stops: got %d", code)
				}
			}
			if _, using := attended(); using != 0 {
				t.Errorf("the machine is still used %d times", using)
			}
		})
	}
}

func TestLimitsOfSessions(t *testing.T) {
	limits := testLimits()
	limits.PerMachine = 2
	f := newFixture(t, limits)
	first := f.open("console")
	f.open("portforward?port=22")
	code, body := f.get(f.path("log"), f.front, identity("jane"))
	if code != http.StatusTooManyRequests || !strings.Contains(statusOf(t, body).Message, "2 sessions") {
		t.Errorf("got %d, %s", code, body)
	}
	_ = first.Close(websocket.StatusNormalClosure, "")
	harness.Eventually(t, "there is room for another one", func() bool {
		code, _ := f.get(f.path("log"), f.front, identity("jane"))
		return code == http.StatusOK
	})
}
