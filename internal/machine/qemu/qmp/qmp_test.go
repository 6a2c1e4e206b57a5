package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

const greeting = `{"QMP": {"version": {}, "capabilities": []}}` + "\n"

// serve runs a server for one client until the test ends.
func serve(t *testing.T, talk func(net.Conn, *bufio.Scanner)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		lines := bufio.NewScanner(conn)
		lines.Buffer(nil, maxLine)
		talk(conn, lines)
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	return path
}

// next returns the command on the next line, and its ID.
func next(lines *bufio.Scanner) (command string, id json.RawMessage) {
	if !lines.Scan() {
		return "", nil
	}
	var got struct {
		Execute string
		ID      json.RawMessage
	}
	if err := json.Unmarshal([]byte(strings.TrimLeftFunc(lines.Text(), func(r rune) bool { return r == utf8.RuneError })), &got); err != nil {
		panic(err)
	}
	return got.Execute, got.ID
}

// monitor responds to each command from answers; other commands get no response.
func monitor(conn net.Conn, lines *bufio.Scanner, answers map[string]string) {
	fmt.Fprint(conn, greeting)
	for {
		command, id := next(lines)
		if command == "" {
			return
		}
		if command == "qmp_capabilities" {
			fmt.Fprintf(conn, `{"return": {}, "id": %s}`+"\n", id)
		} else if answer, found := answers[command]; found {
			fmt.Fprintf(conn, answer+"\n", id)
		}
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func dialed(t *testing.T, talk func(net.Conn, *bufio.Scanner)) *Client {
	t.Helper()
	c, err := Dial(within(t, 10*time.Second), serve(t, talk))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestResponsesMatchCommands(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
		monitor(conn, lines, map[string]string{
			"query-name": `{"return": {"name": "vm"}, "id": %s}`,
			"cont":       `{"id": %s, "error": {"class": "GenericError", "desc": "it is off"}}`,
			"long":       `{"return": "` + long + `", "id": %s}`,
			"late":       `{"return": "for nobody", "id": 999}` + "\n" + `{"return": "late", "id": %s}`,
		})
	})
	var name struct{ Name string }
	if err := c.Run(within(t, 10*time.Second), "query-name", nil, &name); err != nil || name.Name != "vm" {
		t.Errorf("query-name: %+v, %v", name, err)
	}
	var refused *Error
	if err := c.Run(within(t, 10*time.Second), "cont", nil, nil); !errors.As(err, &refused) || refused.Description != "it is off" {
		t.Errorf("cont: %v", err)
	}
	var got string
	if err := c.Run(within(t, 10*time.Second), "long", nil, &got); err != nil || got != long {
		t.Errorf("a response of 3 MiB: %d bytes, %v", len(got), err)
	}
	if err := c.Run(within(t, 10*time.Second), "late", nil, &got); err != nil || got != "late" {
		t.Errorf("late: %q, %v", got, err)
	}
}

func TestManyCommandsAtOnce(t *testing.T) {
	c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
		monitor(conn, lines, map[string]string{"echo": `{"return": %[1]s, "id": %[1]s}`})
	})
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			var got int64
			if err := c.Run(within(t, 10*time.Second), "echo", nil, &got); err != nil || got == 0 {
				t.Errorf("echo: %d, %v", got, err)
			}
		})
	}
	running.Wait()
}

func TestUnresponsivePeer(t *testing.T) {
	t.Run("no greeting", func(t *testing.T) {
		path := serve(t, func(_ net.Conn, lines *bufio.Scanner) { next(lines) })
		if _, err := Dial(within(t, 50*time.Millisecond), path); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial: %v", err)
		}
	})
	t.Run("no response", func(t *testing.T) {
		c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
			monitor(conn, lines, map[string]string{"query-name": `{"return": {}, "id": %s}`})
		})
		if err := c.Run(within(t, 50*time.Millisecond), "hang", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hang: %v", err)
		}
		if err := c.Run(within(t, 10*time.Second), "query-name", nil, nil); err != nil {
			t.Errorf("after a command without a response: %v", err)
		}
		if len(c.pending) != 0 {
			t.Errorf("%d commands are still pending", len(c.pending))
		}
	})
	t.Run("it does not read", func(t *testing.T) {
		c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
			fmt.Fprint(conn, greeting)
			_, id := next(lines)
			fmt.Fprintf(conn, `{"return": {}, "id": %s}`+"\n", id)
		})
		arguments := map[string]string{"much": strings.Repeat("x", 8<<20)}
		if err := c.Run(within(t, 100*time.Millisecond), "fill", arguments, nil); err == nil {
			t.Error("a write succeeded although the peer does not read")
		}
	})
}

func TestSlowPeer(t *testing.T) {
	c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
		for _, b := range []byte(greeting) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
		for {
			_, id := next(lines)
			if id == nil {
				return
			}
			for _, b := range fmt.Appendf(nil, `{"return": {}, "id": %s}`+"\r\n", id) {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
			}
		}
	})
	if err := c.Run(within(t, 10*time.Second), "query-name", nil, nil); err != nil {
		t.Errorf("a byte at a time: %v", err)
	}
}

func TestDisconnectFailsPendingCommands(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"it disconnects":          func(conn net.Conn) { _ = conn.Close() },
		"in the middle of a line": func(conn net.Conn) { fmt.Fprint(conn, `{"return"`); _ = conn.Close() },
		"another protocol":        func(conn net.Conn) { fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
				fmt.Fprint(conn, greeting)
				_, id := next(lines)
				fmt.Fprintf(conn, `{"return": {}, "id": %s}`+"\n", id)
				next(lines)
				end(conn)
			})
			if err := c.Run(within(t, 10*time.Second), "wait", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("a command during the disconnect: %v", err)
			}
			<-c.Done()
			if _, open := <-c.Events(); open {
				t.Error("an event after the disconnect")
			}
			if err := c.Run(within(t, 10*time.Second), "after", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("a command after the disconnect: %v", err)
			}
		})
	}
}

func TestEventsAreBounded(t *testing.T) {
	c := dialed(t, func(conn net.Conn, lines *bufio.Scanner) {
		flood := make([]string, eventQueueSize+10)
		for i := range flood {
			flood[i] = fmt.Sprintf(`{"event": "STOP", "data": {"n": %d}, "timestamp": {"seconds": 5, "microseconds": 6}}`, i)
		}
		monitor(conn, lines, map[string]string{"flood": strings.Join(flood, "\n") + "\n" + `{"return": {}, "id": %s}`})
	})
	if err := c.Run(within(t, 10*time.Second), "flood", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := len(c.Events()); got != eventQueueSize {
		t.Errorf("%d events are in the queue, want %d", got, eventQueueSize)
	}
	first := <-c.Events()
	if first.Name != "STOP" || string(first.Data) != `{"n": 0}` {
		t.Errorf("first event: %+v", first)
	}
}

// A peer that sends endlessly is disconnected soon.
func TestFlood(t *testing.T) {
	sync := func(conn net.Conn, lines *bufio.Scanner) {
		lines.Scan()
		var got struct {
			Arguments struct{ ID int64 }
			ID        int64
		}
		_, line, _ := strings.Cut(lines.Text(), "\xff")
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			panic(err)
		}
		fmt.Fprintf(conn, "\xff"+`{"return": %d, "id": %d}`+"\n", got.Arguments.ID, got.ID)
	}
	repeat := func(conn net.Conn, line string) {
		for {
			if _, err := fmt.Fprintln(conn, line); err != nil {
				return
			}
		}
	}
	for name, test := range map[string]struct {
		dial func(context.Context, string) (*Client, error)
		talk func(net.Conn, *bufio.Scanner)
		says string
	}{
		"events of a monitor": {Dial, func(conn net.Conn, lines *bufio.Scanner) {
			fmt.Fprint(conn, greeting)
			_, id := next(lines)
			fmt.Fprintf(conn, `{"return": {}, "id": %s}`+"\n", id)
			repeat(conn, `{"event": "GUEST_CRASHLOADED"}`)
		}, ErrFlood.Error()},
		"unsolicited responses of an agent": {DialAgent, func(conn net.Conn, lines *bufio.Scanner) {
			sync(conn, lines)
			repeat(conn, `{"return": {}, "id": 1}`)
		}, ErrFlood.Error()},
		"lines before the response of an agent": {DialAgent, func(conn net.Conn, _ *bufio.Scanner) { repeat(conn, "x") }, ErrFlood.Error()},
		"long line of an agent": {DialAgent, func(conn net.Conn, lines *bufio.Scanner) {
			sync(conn, lines)
			fmt.Fprintf(conn, `{"return": "%s"}`+"\n", strings.Repeat("x", maxAgentLine))
		}, "more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := test.dial(within(t, 10*time.Second), serve(t, test.talk))
			if err == nil {
				defer c.Close()
				select {
				case <-c.Done():
				case <-within(t, time.Minute).Done():
					t.Fatal("the connection is still open after a minute")
				}
				err = c.Run(t.Context(), "after", nil, nil)
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the connection ended with %v, want %q", err, test.says)
			}
		})
	}
}

func TestAgentDuringAResponse(t *testing.T) {
	agent := func(conn net.Conn, lines *bufio.Scanner) {
		fmt.Fprint(conn, `ld": 3}, "id": 4}`+"\n"+`{"return": {}, "id": 1}`+"\n"+`{"retu`)
		for lines.Scan() {
			line := lines.Text()
			if i := strings.LastIndexByte(line, agentMark); i >= 0 {
				line = line[i+1:]
			}
			var got struct {
				Execute   string
				Arguments struct{ ID int64 }
				ID        int64
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				panic(err)
			}
			switch got.Execute {
			case "guest-sync-delimited":
				fmt.Fprintf(conn, "\xff"+`{"return": %d, "id": %d}`+"\n", got.Arguments.ID, got.ID)
			case "guest-ping":
				fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", got.ID)
			}
		}
	}
	path := serve(t, agent)
	c, err := DialAgent(within(t, 10*time.Second), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Run(within(t, 10*time.Second), "guest-ping", nil, nil); err != nil {
		t.Errorf("guest-ping: %v", err)
	}
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte(greeting + "\n\xff{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		client, server := net.Pipe()
		c := newClient(client, monitorLimits)
		go func() {
			_, _ = server.Write(data)
			_ = server.Close()
		}()
		for range c.Events() {
		}
		if err := c.reason(); !errors.Is(err, ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection ended with %v", err)
		}
	})
}
