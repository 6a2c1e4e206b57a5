package agent

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readAll returns what readRequest makes of a stream; "!" stands for errMalformed.
func readAll(stream string) []string {
	r := bufio.NewReader(strings.NewReader(stream))
	var got []string
	for {
		text, err := readRequest(r)
		switch {
		case errors.Is(err, errMalformed):
			got = append(got, "!")
		case err != nil:
			if !errors.Is(err, io.EOF) {
				got = append(got, err.Error())
			}
			return got
		default:
			got = append(got, string(text))
		}
	}
}

func TestReadRequest(t *testing.T) {
	tests := []struct {
		name   string
		stream string
		want   []string
	}{
		{"one line", `{"a":1}` + "\n", []string{`{"a":1}`}},
		{"two in a line", `{"a":1}{"b":2}`, []string{`{"a":1}`, `{"b":2}`}},
		{"over several lines", "{\n\"a\":\n1}\n", []string{"{\n\"a\":\n1}"}},
		{"braces inside a string", `{"a":"}{\"}"}`, []string{`{"a":"}{\"}"}`}},
		{"nested", `{"a":[{"b":{}}]}`, []string{`{"a":[{"b":{}}]}`}},
		{"no request", "hello\n{\"a\":1}\n", []string{"!", `{"a":1}`}},
		{"an array", "[1]\n{}\n", []string{"!", "{}"}},
		{"a string without an end", "{\"a\":\"b\n{\"c\":1}\n", []string{"!", `{"c":1}`}},
		{"half a request, then the sentinel", "{\"a\":\"b\xff{\"c\":1}", []string{`{"c":1}`}},
		{"no request, then the sentinel", "hello\xff{\"c\":1}", []string{"!", `{"c":1}`}},
		{"sentinel first", "\xff{\"c\":1}", []string{`{"c":1}`}},
		{"too long", "{\"a\":\"" + strings.Repeat("x", maxRequest) + "\"}\n{}", []string{"!", "{}"}},
		{"the stream ends early", `{"a":1`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, readAll(tt.stream)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
