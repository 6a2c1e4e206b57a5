package launcher

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
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

// The default guest is reset at most three times while it does not open the channel of its agent.
func TestSilentGuest(t *testing.T) {
	const reset = "system_reset"
	for name, test := range map[string]struct {
		change func(*launcher)
		want   []string
	}{
		"silent":                  {func(*launcher) {}, []string{reset, reset, reset}},
		"it has spoken":           {func(l *launcher) { l.stopAgent = func() {} }, nil},
		"another image":           {func(l *launcher) { l.definition.Image = true }, nil},
		"goes on where it was":    {func(l *launcher) { l.memory = &savedMemory{} }, nil},
		"its processors stand":    {func(l *launcher) { l.halted = true }, nil},
		"its memory is saved":     {func(l *launcher) { l.sleeper.running = true }, nil},
		"it is halted for a take": {func(l *launcher) { l.halting.Store(true) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn, commands := monitorThatObeys(t)
			l := newLauncher(Definition{}, Dirs{}, nil, io.Discard)
			test.change(l)
			l.beginBoot()
			for range 10 * guestboot.MaxResets {
				before := l.boot.Resets
				l.watchBoot(conn, time.Hour)
				if l.boot.Resets > before {
					l.handle(conn, qmp.Event{Name: "RESET", Data: json.RawMessage(`{}`)})
				}
			}
			if diff := cmp.Diff(test.want, commands()); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}
