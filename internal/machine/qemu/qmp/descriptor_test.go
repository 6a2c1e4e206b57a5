package qmp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The peer gets a descriptor of its own with the command.
func TestRunWithFile(t *testing.T) {
	path := serve(t, func(conn net.Conn, lines *bufio.Scanner) {
		fmt.Fprint(conn, greeting)
		_, id := next(lines)
		fmt.Fprintf(conn, `{"return": {}, "id": %s}`+"\n", id)
		data, control := make([]byte, 4096), make([]byte, syscall.CmsgSpace(4))
		n, controls, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, control)
		if err != nil {
			return
		}
		var got struct {
			Execute string
			ID      json.RawMessage
		}
		messages, err := syscall.ParseSocketControlMessage(control[:controls])
		if err != nil || len(messages) != 1 || json.Unmarshal(data[:n], &got) != nil || got.Execute != "add-fd" {
			return
		}
		fds, err := syscall.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			return
		}
		file := os.NewFile(uintptr(fds[0]), "passed")
		defer file.Close()
		content, err := io.ReadAll(file)
		if err == nil {
			fmt.Fprintf(conn, `{"return": {"content": %q}, "id": %s}`+"\n", content, got.ID)
		}
	})
	c, err := Dial(within(t, 10*time.Second), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	name := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(name, []byte("from the file"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var result struct{ Content string }
	if err := c.RunWithFile(within(t, 10*time.Second), "add-fd", nil, file, &result); err != nil {
		t.Fatal(err)
	}
	if result.Content != "from the file" {
		t.Errorf("the peer read %q", result.Content)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Errorf("the file was closed: %v", err)
	}
	// A connection that is no Unix socket cannot pass it, and fails instead of omitting it.
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = theirs.Close() })
	pipe := newClient(ours, monitorLimits)
	if err := pipe.RunWithFile(within(t, 10*time.Second), "add-fd", nil, file, nil); err == nil || !strings.Contains(err.Error(), "Unix socket") {
		t.Errorf("through a pipe: %v", err)
	}
}
