package agent

import (
	"bufio"
	"errors"
)

// maxRequest is the longest request that is read, in bytes. The longest that we
// understand has less than 300.
const maxRequest = 64 << 10

// sentinel is a byte that no JSON text has. A client sends it to end whatever half a
// request an earlier client left behind.
const sentinel = 0xff

// errMalformed says that something came that is no request; what follows may be one.
var errMalformed = errors.New("JSON parse error")

// readRequest returns the next JSON object of the stream as text, which need not be
// valid inside. errMalformed leaves the stream usable, any other error does not.
func readRequest(r *bufio.Reader) ([]byte, error) {
	var text []byte
	depth, quoted, escaped := 0, false, false
	for {
		c, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		switch {
		case c == sentinel:
			text, depth, quoted, escaped = nil, 0, false, false
			continue
		case depth == 0 && c != '{':
			if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
				continue
			}
			return nil, skipLine(r)
		case len(text) == maxRequest:
			return nil, skipLine(r)
		}
		text = append(text, c)
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\n':
			return nil, errMalformed
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth == 0 {
			return text, nil
		}
	}
}

// skipLine reads to the end of the line, or to the sentinel, where a client begins
// anew, and returns errMalformed.
func skipLine(r *bufio.Reader) error {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return err
		}
		if c == '\n' || c == sentinel {
			return errMalformed
		}
	}
}
