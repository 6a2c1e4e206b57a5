package pod

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/launcher"
)

// simulated are launchers without machines: their console, their screen and port 22 return what they get, and they have no other port.
type simulated struct {
	mu      sync.Mutex
	servers map[types.UID]*httptest.Server
	// falling are the Pods whose machines fall asleep; awake is why none of them can, if it is not empty.
	falling map[types.UID]bool
	awake   string
	// powersOff are the Pods that are about to be deleted to power their machines off.
	powersOff map[types.UID]bool
	// guest is the answer about all guests.
	guest launcher.Guest
	// changes are those of running machines: disk and bytes, or ports. An old launcher knows none.
	changes []string
	old     bool
}

func newSimulated() *simulated {
	return &simulated{servers: map[types.UID]*httptest.Server{}, falling: map[types.UID]bool{}, powersOff: map[types.UID]bool{}}
}

// change changes what the launchers do.
func (s *simulated) change(do func(*simulated)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s)
}

// areHindered reports whether guests are halted or silent, or their images are imported, so that their Pods are not ready.
func (s *simulated) areHindered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guest != (launcher.Guest{MinimumMemory: s.guest.MinimumMemory})
}

// serveSleep has the simulated kubelet end the Pod, as the launcher ends before it answers.
func (s *simulated) serveSleep(uid types.UID, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	awake := s.awake
	s.falling[uid] = awake == ""
	s.mu.Unlock()
	if awake != "" {
		http.Error(w, awake, http.StatusBadGateway)
		return
	}
	<-r.Context().Done()
}

// endOf returns how the machine in a Pod ends when that is deleted.
func (s *simulated) endOf(pod *corev1.Pod) launcher.Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	if definition, _ := definitionOf(pod); definition.SleepWhenEvicted && !s.powersOff[pod.UID] {
		return launcher.Ended{Cause: launcher.CauseAsleep, SavedBytes: 1 << 20}
	}
	return launcher.Ended{Cause: launcher.CauseHost, Message: "its Pod was stopped"}
}

// serveChange records a change of a running machine.
func (s *simulated) serveChange(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.old {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	s.changes = append(s.changes, strings.TrimSpace(query.Get(launcher.DiskParameter)+" "+query.Get(launcher.BytesParameter)+strings.Join(query[launcher.PortParameter], " ")))
}

// made returns the changes so far.
func (s *simulated) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes)
}

// isFalling reports whether the machine in a Pod falls asleep.
func (s *simulated) isFalling(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.falling[uid]
}

// forward connects to the launcher of a Pod.
func (s *simulated) forward(ctx context.Context, pod *corev1.Pod, _ int32) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := s.servers[pod.UID]
	if server == nil {
		server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(pod.UID, w, r) }))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		s.servers[pod.UID] = server
	}
	return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
}

// end ends the launcher of a Pod.
func (s *simulated) end(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server := s.servers[uid]; server != nil {
		server.CloseClientConnections()
		server.Close()
		delete(s.servers, uid)
	}
}

func (s *simulated) endAll() {
	for uid := range s.servers {
		s.end(uid)
	}
}

func (s *simulated) serve(uid types.UID, w http.ResponseWriter, r *http.Request) {
	switch {
	case len(r.Header.Get("Authorization")) < 20:
		http.Error(w, "no token", http.StatusForbidden)
	case r.URL.Path == launcher.ScreenshotPath:
		_ = png.Encode(w, image.NewGray(image.Rect(0, 0, 1, 1))) // the driver may have been closed
	case r.URL.Path == launcher.ConsolePath, r.URL.Path == launcher.ScreenPath, r.URL.Path == launcher.DialPath && r.URL.Query().Get(launcher.PortParameter) == "22":
		w.WriteHeader(http.StatusOK)
		if r.URL.Path == launcher.ScreenPath {
			_, _ = io.WriteString(w, "RFB 003.008\n")
		}
		_ = http.NewResponseController(w).Flush()
		for block := make([]byte, 100); ; {
			n, err := r.Body.Read(block)
			if _, failed := w.Write(block[:n]); err != nil || failed != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	case r.URL.Path == launcher.GuestPath:
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.guest) // the driver may have been closed
	case r.URL.Path == launcher.SleepPath:
		s.serveSleep(uid, w, r)
	case r.URL.Path == launcher.PowerOffPath:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.powersOff[uid] = true
	case r.URL.Path == launcher.MemoryPath, r.URL.Path == launcher.GrowPath, r.URL.Path == launcher.PortsPath:
		s.serveChange(w, r)
	case r.URL.Path == launcher.PausePath, r.URL.Path == launcher.ResumePath:
	case r.URL.Path == launcher.DialPath:
		http.Error(w, "the guest refuses the connection", http.StatusBadGateway)
	default:
		http.NotFound(w, r)
	}
}

// logs returns the log of a Pod, which names it.
func (s *simulated) logs(ctx context.Context, pod *corev1.Pod, tail int, follow bool) (io.ReadCloser, error) {
	text := io.Reader(strings.NewReader(fmt.Sprintf("%d lines of %s\n", tail, pod.Annotations[annotationRun])))
	if follow {
		text = io.MultiReader(text, untilEnd{ctx, s, pod.UID})
	}
	return io.NopCloser(text), nil
}

// untilEnd is a log without output, which ends with its launcher.
type untilEnd struct {
	ctx context.Context
	s   *simulated
	uid types.UID
}

// Read implements io.Reader.
func (u untilEnd) Read([]byte) (int, error) {
	conn, err := u.s.forward(u.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: u.uid}}, 0)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(u.ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = conn.Read(make([]byte, 1)) // HTTP servers say nothing first
	if u.ctx.Err() != nil {
		return 0, u.ctx.Err()
	}
	return 0, io.EOF
}

// limited is a transport whose responses can only be read.
type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct{ io.ReadCloser }{response.Body}
	}
	return response, err
}

// TestForward forwards a port as the API server does: messages with channels.
func TestForward(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/ns/pods/vm/portforward" || r.URL.Query().Get("ports") != "65000" {
			http.Error(w, "", http.StatusForbidden)
			return
		}
		socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{channels}})
		if err != nil {
			return
		}
		defer socket.CloseNow() //nolint:errcheck // it may be closed
		socket.SetReadLimit(1 << 20)
		for _, channel := range []byte{dataChannel, errorChannel} {
			_ = socket.Write(r.Context(), websocket.MessageBinary, binary.LittleEndian.AppendUint16([]byte{channel}, 65000))
		}
		for {
			_, message, err := socket.Read(r.Context())
			if err != nil {
				return
			}
			if string(message[1:]) == "fail" {
				message = append([]byte{errorChannel}, "no such port"...)
			}
			_ = socket.Write(r.Context(), websocket.MessageBinary, message)
		}
	}))
	defer api.Close()
	config := &rest.Config{Host: api.URL}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return limited{inner} }) // as that of the manager
	pods, err := newPods(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := pods.forward(ctx, pod, 65000)
	cancel() // it limits the attempt
	if err != nil {
		t.Fatal(err)
	}
	sent := strings.Repeat("0123456789", 10_000)
	go func() { _, _ = io.WriteString(conn, sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != sent {
		t.Errorf("the port returns %d bytes, %v", len(got), err)
	}
	if _, err := io.WriteString(conn, "fail"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(got); err == nil || !strings.Contains(err.Error(), "no such port") {
		t.Errorf("a port that fails: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	pod.Name = "another"
	if _, err := pods.forward(t.Context(), pod, 65000); err == nil || !strings.Contains(err.Error(), "pods/portforward") {
		t.Errorf("without the permission: %v", err)
	}
}

// TestDial connects to a port, ends one side only, and is refused at another.
func TestDial(t *testing.T) {
	launchers := newSimulated()
	defer launchers.endAll()
	machine := newMachine()
	pod := newPod(&record{Started: &machine, Run: "run", SeedSum: ""}, images{}, emulated, false)
	pod.UID = "a-pod"
	l := newLaunchers(launchers.forward)
	defer l.close()
	conn, err := l.connect(t.Context(), pod, strings.Repeat("t", 26), launcher.DialPath+"?port=22")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(conn); err != nil || string(raw) != "hello" {
		t.Errorf("read %q, %v", raw, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{launcher.DialPath + "?port=9": "refuses", "/else": "earlier version"} {
		_, err := l.connect(t.Context(), pod, strings.Repeat("t", 26), path)
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, new(refusal)) != (want == "refuses") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
