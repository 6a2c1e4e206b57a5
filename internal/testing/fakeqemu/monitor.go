package fakeqemu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// failure is the answer of a command that fails.
type failure struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// Error implements error.
func (f *failure) Error() string { return f.Desc }

func generic(format string, arguments ...any) error {
	return &failure{"GenericError", fmt.Sprintf(format, arguments...)}
}

func notFound(device string) error {
	return &failure{"DeviceNotFound", fmt.Sprintf("Device '%s' not found", device)}
}

// request is a command.
type request struct {
	Execute   string
	Arguments map[string]any
	ID        json.RawMessage
}

// answer is its answer.
type answer struct {
	Return any             `json:"return,omitempty"`
	Error  *failure        `json:"error,omitempty"`
	ID     json.RawMessage `json:"id,omitempty"`
}

// serveMonitor serves a connection of QMP.
func (m *machine) serveMonitor(c *chardev, conn *net.UnixConn) {
	var writing sync.Mutex
	send := func(message any) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = conn.Write(marshal(message))
	}
	m.mu.Lock()
	c.open = true
	m.mu.Unlock()
	send(map[string]any{"QMP": map[string]any{"version": version, "capabilities": []string{"oob"}}})
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		c.open, m.listeners = false, nil
	}()
	var file passed
	var received []byte
	negotiated := false
	buffer, controls := make([]byte, 64<<10), make([]byte, 64)
	for {
		n, controlled, _, _, err := conn.ReadMsgUnix(buffer, controls)
		if err != nil || n == 0 {
			return
		}
		file.add(controls[:controlled])
		received = append(received, buffer[:n]...)
		for {
			line, rest, found := cutLine(received)
			if !found {
				break
			}
			received = rest
			var r request
			if bytes.Contains(line, []byte(`"arguments":null`)) {
				send(answer{Error: &failure{"GenericError", "QMP input member 'arguments' must be an object"}})
				continue
			}
			if err := json.Unmarshal(line, &r); err != nil {
				send(answer{Error: &failure{"GenericError", "JSON parse error, " + err.Error()}})
				continue
			}
			if !negotiated && r.Execute == "qmp_capabilities" {
				negotiated = true
				m.mu.Lock()
				m.listeners = append(m.listeners, func(e event) { send(e) })
				m.mu.Unlock()
				send(answer{Return: none, ID: r.ID})
				continue
			}
			if !negotiated {
				send(answer{Error: &failure{"CommandNotFound", "Expecting capabilities negotiation with 'qmp_capabilities'"}, ID: r.ID})
				continue
			}
			send(m.execute(&r, &file, commands))
		}
	}
}

// none is the answer of a command without a result.
var none = map[string]any{}

// execute runs a command.
func (m *machine) execute(r *request, file *passed, known map[string]command) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var result any
	c, found := known[r.Execute]
	err := error(&failure{"CommandNotFound", fmt.Sprintf("The command %s has not been found", r.Execute)})
	if found {
		err = check(c.arguments, r.Arguments)
	}
	if err == nil {
		result, err = c.run(m, r.Arguments, file)
	}
	var refused *failure
	switch {
	case errors.As(err, &refused):
		return answer{Error: refused, ID: r.ID}
	case err != nil:
		return answer{Error: &failure{"GenericError", err.Error()}, ID: r.ID}
	case result == nil:
		result = none
	}
	return answer{Return: result, ID: r.ID}
}

// check checks arguments against words such as "uri:string" and "detach?:boolean", in the order of QEMU: first those that it knows.
func check(known string, given map[string]any) error {
	names := map[string]bool{}
	for _, word := range strings.Fields(known) {
		name, kind, _ := strings.Cut(word, ":")
		name, optional := strings.CutSuffix(name, "?")
		names[name] = true
		value, found := given[name]
		if !found && !optional {
			return generic("Parameter '%s' is missing", name)
		}
		if found && !isA(value, kind) {
			return generic("Invalid parameter type for '%s', expected: %s", name, kind)
		}
	}
	for name := range given {
		if !names[name] {
			return generic("Parameter '%s' is unexpected", name)
		}
	}
	return nil
}

func isA(value any, kind string) bool {
	is := false
	switch kind {
	case "string":
		_, is = value.(string)
	case "integer":
		var number float64
		number, is = value.(float64)
		is = is && number == float64(int64(number))
	case "boolean":
		_, is = value.(bool)
	case "array":
		_, is = value.([]any)
	case "object":
		_, is = value.(map[string]any)
	default:
		is = true
	}
	return is
}

// serveHuman serves a connection of the human monitor.
func (m *machine) serveHuman(conn net.Conn) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		m.mu.Lock()
		output := m.human(strings.TrimSpace(lines.Text()))
		m.mu.Unlock()
		_, _ = io.WriteString(conn, output)
	}
}

// human runs a command of the human monitor.
func (m *machine) human(line string) string {
	words := strings.Fields(line)
	switch {
	case len(words) == 0:
		return ""
	case words[0] == "system_powerdown":
		m.powerDown()
		return ""
	case words[0] == "qemu-io" && len(words) > 3 && words[1] == "-d":
		return m.guestIO(words[2], strings.Trim(strings.Join(words[3:], " "), `"`))
	}
	return fmt.Sprintf("unknown command: '%s'\r\n", words[0])
}

func discard(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
