package launcher

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// monitorThatObeys returns a connection to a monitor that accepts all commands, and a function that returns those that it got.
func monitorThatObeys(t *testing.T) (conn *qmp.Client, commands func() []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "qmp")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 100)
	go func() {
		defer close(got)
		served, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(served, `{"QMP": {"version": {}, "capabilities": []}}`+"\n")
		for lines := bufio.NewScanner(served); lines.Scan(); {
			var command struct {
				Execute string
				ID      json.RawMessage
			}
			if json.Unmarshal(lines.Bytes(), &command) != nil {
				return
			}
			got <- command.Execute
			_, _ = fmt.Fprintf(served, `{"return": {}, "id": %s}`+"\n", command.ID)
		}
	}()
	if conn, err = qmp.Dial(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return conn, func() (all []string) {
		conn.Close()
		for command := range got {
			if command != "qmp_capabilities" {
				all = append(all, command)
			}
		}
		return all
	}
}

// The default guest is reset at most three times while it does not open the channel of its agent, and the manager learns of each time.
func TestSilentGuest(t *testing.T) {
	const reset = "system_reset"
	first, last := &Silence{Resets: 1, After: 5 * time.Minute}, &Silence{Resets: 3, After: 40 * time.Minute, GaveUp: true}
	for name, test := range map[string]struct {
		change func(*launcher)
		want   []string
		// tells is what the manager hears in the end; nil if nothing.
		tells *Silence
	}{
		"silent":                  {func(*launcher) {}, []string{reset, reset, reset}, last},
		"it has spoken":           {func(l *launcher) { l.stopAgent = func() {} }, nil, nil},
		"another image":           {func(l *launcher) { l.definition.Image = true }, nil, nil},
		"goes on where it was":    {func(l *launcher) { l.memory = &savedMemory{} }, nil, nil},
		"its processors stand":    {func(l *launcher) { l.halted = true }, nil, nil},
		"its memory is saved":     {func(l *launcher) { l.sleeper.running = true }, nil, nil},
		"it is halted for a take": {func(l *launcher) { l.halting.Store(true) }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn, commands := monitorThatObeys(t)
			l := newLauncher(Definition{}, Dirs{}, nil, io.Discard)
			test.change(l)
			l.beginBoot()
			for i := range 10 * guestboot.MaxResets {
				l.watchOnce(conn, time.Hour)
				if i == 0 && test.tells != nil {
					expectSilence(t, l, first)
				}
			}
			if diff := cmp.Diff(test.want, commands()); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			expectSilence(t, l, test.tells)
		})
	}
}

// watchOnce looks after the guest once, which obeys a reset.
func (l *launcher) watchOnce(conn *qmp.Client, interval time.Duration) {
	before := l.boot.Resets
	l.watchBoot(conn, interval)
	if l.boot.Resets > before {
		l.handle(conn, qmp.Event{Name: "RESET", Data: json.RawMessage(`{}`)})
	}
}

// expectSilence fails the test if the manager does not hear of this silence.
func expectSilence(t *testing.T, l *launcher, want *Silence) {
	t.Helper()
	response := httptest.NewRecorder()
	l.ready.serveGuest(response, nil)
	var got Guest
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Guest{Silence: want}, got); diff != "" {
		t.Errorf("the manager hears (-want +got):\n%s", diff)
	}
}

// A guest that has spoken is not silent any more, and its next boot has all its resets.
func TestGuestSpeaksAfterAReset(t *testing.T) {
	conn, _ := monitorThatObeys(t)
	l := newLauncher(Definition{}, Dirs{}, nil, io.Discard)
	l.beginBoot()
	for range 2 {
		l.watchOnce(conn, time.Hour)
	}
	expectSilence(t, l, &Silence{Resets: 2, After: 10 * time.Minute})
	l.stopAgent = func() {}
	l.watchOnce(conn, time.Second)
	expectSilence(t, l, nil)
	l.handle(conn, qmp.Event{Name: "RESET", Data: json.RawMessage(`{}`)})
	l.stopAgent = nil
	l.watchOnce(conn, time.Hour)
	expectSilence(t, l, &Silence{Resets: 1, After: 5 * time.Minute})
}
