package fakeqemu

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// Monitor returns a connection to a monitor that accepts all commands, and a function that returns those that it got.
func Monitor(t testing.TB) (conn *qmp.Client, commands func() []string) {
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
